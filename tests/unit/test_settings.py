"""What settings ConfigMaps can set: the options of jobs with an environment variable CHORES_NAME."""

from __future__ import annotations

import re
from importlib import import_module

import click

from jobs.__main__ import JOBS
from jobs.kit.run.flags import variable
from tests.manifests import ROOT

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


def test_an_option_has_no_other_variable_that_starts_with_chores() -> None:
    for each in options():
        found = [envvar for envvar in each.envvar or () if envvar.startswith("CHORES_")]
        assert found in ([], [variable(name(each))])
