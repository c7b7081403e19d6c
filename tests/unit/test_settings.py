"""What settings ConfigMaps can set: the options of jobs with an environment variable CHORES_NAME."""

from __future__ import annotations

import re
from importlib import import_module

import click

from jobs.__main__ import JOBS
from jobs.core.fetch_rates.figures import Figures
from jobs.kit.run.flags import variable
from jobs.kit.values.names import SETTINGS
from tests.manifests import ROOT, everything, twins

FIGURES = Figures("1.1", "0.9", "EUR", "USD", "2026-01-02", "ecb")
SECURITY = (ROOT / "docs" / "security.md").read_text()


def options() -> list[click.Option]:
    """The options of all jobs."""
    commands = [import_module(module).command for module in JOBS.values()]
    return [each for command in commands for each in command.params if isinstance(each, click.Option)]


def name(option: click.Option) -> str:
    """The long form of an option."""
    return next(each for each in option.opts if each.startswith("--"))


def test_the_flags_that_no_settings_configmap_can_set_are_those_of_the_documentation() -> None:
    table = re.search(r"test_settings.py -->\n.*\n.*\n((?:\|.*\n)+)", SECURITY)
    assert table
    documented = {flag for line in table[1].splitlines() for flag in re.findall(r"`(--[a-z-]+)`", line.split("|")[1])}

    assert {name(each) for each in options() if variable(name(each)) not in (each.envvar or ())} == documented


def test_the_reserved_names_are_those_that_the_cronjobs_read() -> None:
    cronjobs = [each for each in [*everything(), *twins()] if each["kind"] == "CronJob"]
    pods = [each["spec"]["jobTemplate"]["spec"]["template"]["spec"] for each in cronjobs]
    sources = [each for pod in pods for container in pod["containers"] for each in container["envFrom"]]

    assert {each["configMapRef"]["name"] for each in sources} == SETTINGS
    assert {each["prefix"] for each in sources} == {"CHORES_"}


def test_no_field_of_a_rate_is_an_option() -> None:
    variables = {envvar for each in options() for envvar in each.envvar or ()}

    assert {f"CHORES_{field}" for field in FIGURES.data()}.isdisjoint(variables)


def test_an_option_has_no_other_variable_that_starts_with_chores() -> None:
    for each in options():
        found = [envvar for envvar in each.envvar or () if envvar.startswith("CHORES_")]
        assert found in ([], [variable(name(each))])
