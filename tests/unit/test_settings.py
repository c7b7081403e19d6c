"""What settings ConfigMaps can set: the options of jobs with an environment variable CHORES_NAME."""

from __future__ import annotations

import re
from importlib import import_module

import click
import pytest
from click.testing import CliRunner

from jobs.__main__ import chores
from jobs.core.fetch_rates.exchange_rates import Quote
from jobs.core.sync_copies.kinds import KINDS
from jobs.kit.run.flags import variable
from jobs.kit.values.registry import JOBS, SETTINGS, module
from tests.manifests import ROOT, everything

QUOTE = Quote("1.1", "0.9", "EUR", "USD", "2026-01-02", "ecb")
SECURITY = (ROOT / "docs" / "security.md").read_text()


def options() -> list[click.Option]:
    """The options of all jobs."""
    commands = [import_module(f"jobs.{module(job)}").command for job in JOBS]
    return [each for command in commands for each in command.params if isinstance(each, click.Option)]


def name(option: click.Option) -> str:
    """The long form of an option."""
    return next(each for each in option.opts if each.startswith("--"))


def test_the_flags_that_no_settings_configmap_can_set_are_those_of_the_documentation() -> None:
    table = re.search(r"test_settings.py -->\n.*\n.*\n((?:\|.*\n)+)", SECURITY)
    assert table
    documented = {flag for line in table[1].splitlines() for flag in re.findall(r"`(--[a-z-]+)`", line.split("|")[1])}

    settable = {name(each) for each in options() if any(env.startswith("CHORES_") for env in each.envvar or ())}
    assert {name(each) for each in options()} - settable == documented


def test_the_reserved_names_are_those_that_the_cronjobs_read() -> None:
    cronjobs = [each for each in everything() if each["kind"] == "CronJob"]
    pods = [each["spec"]["jobTemplate"]["spec"]["template"]["spec"] for each in cronjobs]
    sources = [each for pod in pods for container in pod["containers"] for each in container["envFrom"]]

    assert {each["configMapRef"]["name"] for each in sources} == {*SETTINGS}
    assert {each["prefix"] for each in sources} == {"CHORES_"}


def test_the_policy_of_copies_refuses_exactly_the_reserved_names() -> None:
    policies = [each for each in everything() if each["kind"] == "ValidatingAdmissionPolicy"]
    (copies,) = [each for each in policies if each["metadata"]["name"] == "kube-chores-copies"]
    (expression,) = [
        each["expression"] for each in copies["spec"]["validations"] if "settings" in each.get("message", "")
    ]
    by_resource = {
        resource: set(re.findall(r"'([a-z-]+)'", names))
        for resource, names in re.findall(r"'(\w+)': \[([^]]*)\]", expression)
    }

    reserved = {kind.resource.plural: {*kind.readers} for kind in KINDS.values() if kind.readers}
    assert by_resource == {**reserved, "serviceaccounts": {"default"}}
    assert KINDS["serviceaccount"].why_no_name("default")


def test_no_field_of_a_rate_is_an_option() -> None:
    variables = {envvar for each in options() for envvar in each.envvar or ()}

    assert {f"CHORES_{field}" for field in QUOTE.data()}.isdisjoint(variables)


def run(job: str, *arguments: str, **env: str) -> tuple[int, list[str]]:
    """Run a job without a cluster; return its exit code and the lines of its log before the last one."""
    done = CliRunner().invoke(chores, [job, *arguments], env={"KUBECONFIG": "/nonexistent", **env})
    return done.exit_code, done.stderr.splitlines()[:-1]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("CHORES_MAX_DELETS", "no job has this option; did you mean CHORES_MAX_DELETES?"),
        ("CHORES_max-deletes", "no job has this option; did you mean CHORES_MAX_DELETES?"),
        ("CHORES_MAX_ROLS", "no job has this option; did you mean CHORES_MAX_ROLLS?"),
        ("CHORES_XYZ", "no job has this option; see --help"),
        ("CHORES_KUBECONFIG", "--kubeconfig is only a flag; add it to the arguments"),
    ],
)
def test_a_variable_that_sets_nothing_is_a_warning(name: str, why: str) -> None:
    assert run("sync-copies", **{name: "1"})[1] == [f"warning: sync-copies: {name} has no effect: {why}"]


@pytest.mark.parametrize("name", ["CHORES_MAX_ROLLS", "CHORES_NODE_IMAGE", "CHORES_LOG_FORMAT", "MAX_DELETS"])
def test_variables_of_other_jobs_and_programs_are_not_reported(name: str) -> None:
    assert run("sync-copies", **{name: "text"})[1] == []


@pytest.mark.parametrize(
    ("job", "name", "value", "message"),
    [
        (
            "sync-copies",
            "CHORES_MAX_DELETES",
            "many",
            "Invalid value for '--max-deletes' (env var: 'CHORES_MAX_DELETES')",
        ),
        ("sync-copies", "CHORES_DRY_RUN", "true", "Invalid value for '--dry-run' (env var: 'CHORES_DRY_RUN')"),
        ("farm-pods", "CHORES_DIFF", "maybe", "Invalid value for '--diff' (env var: 'CHORES_DIFF')"),
        ("mirror-audit", "CHORES_WAIT", "5", "--wait (CHORES_WAIT) cannot be used without --repair."),
        ("fetch-rates", "CHORES_BASE", "USD", "--base (CHORES_BASE) needs --currency"),
    ],
)
def test_a_wrong_value_ends_the_run_and_the_message_names_the_variable(
    job: str, name: str, value: str, message: str
) -> None:
    done = CliRunner().invoke(chores, [job], env={name: value})

    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].startswith(f"Error: {message}")


@pytest.mark.parametrize(
    ("arguments", "name", "value", "expected"),
    [
        (
            ["fetch-rates"],
            "CHORES_ECB_URL",
            "ecb",
            "Invalid value for '--ecb-url' (env var: 'CHORES_ECB_URL') from key ECB_URL of "
            "ConfigMap fetch-rates-settings or kube-chores-settings: the value is not an http or https URL.",
        ),
        (
            ["mirror-audit", "--repair"],
            "CHORES_WAIT",
            "long",
            "Invalid value for '--wait' (env var: 'CHORES_WAIT') from key WAIT of ConfigMap mirror-repair-settings "
            "or kube-chores-settings: 'long' is not a valid integer range.",
        ),
        (
            ["mirror-audit"],
            "CHORES_WAIT",
            "5",
            "--wait (CHORES_WAIT) from key WAIT of ConfigMap mirror-audit-settings or kube-chores-settings cannot be "
            "used without --repair.",
        ),
        (
            ["sync-copies", "--max-deletes=many"],
            "CHORES_MAX_DELETES",
            "5",
            "Invalid value for '--max-deletes' (env var: 'CHORES_MAX_DELETES'): 'many' is not a valid integer range.",
        ),
        (["status"], "CHORES_LOG_FORMAT", "x", "Invalid value for '--log-format' (env var: 'CHORES_LOG_FORMAT'): "),
        (["sync-copies"], "NAMESPACE", "a.b", "Invalid value for '--namespace' / '-n' (env var: 'NAMESPACE'): "),
    ],
)
def test_in_a_pod_the_message_also_names_the_key_of_the_settings_configmaps(
    arguments: list[str], name: str, value: str, expected: str
) -> None:
    done = CliRunner().invoke(chores, arguments, env={name: value, "KUBERNETES_SERVICE_HOST": "10.0.0.1"})

    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].startswith(f"Error: {expected}")


@pytest.mark.parametrize(
    ("env", "shown"),
    [
        ({"CHORES_DRY_RUN": "client"}, "CHORES_DRY_RUN=client"),
        ({"CHORES_CHECK": "1"}, "CHORES_CHECK=1"),
        ({"CHORES_DRY_RUN": "none", "CHORES_CHECK": "0"}, ""),
    ],
)
def test_a_dry_run_by_a_variable_names_it(env: dict[str, str], shown: str) -> None:
    line = f"sync-copies: the environment sets {shown}: this is a dry run, which writes nothing"
    assert run("sync-copies", **env)[1] == ([line] if shown else [])
    assert run("sync-copies", "--dry-run=server", "--check", **env)[1] == []


def test_an_option_has_no_other_variable_that_starts_with_chores() -> None:
    for each in options():
        found = [envvar for envvar in each.envvar or () if envvar.startswith("CHORES_")]
        assert found in ([], [variable(name(each))])
