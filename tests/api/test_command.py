"""The flags of all jobs, tested with sync-copies on both API servers."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.kit.values.registry import JOBS
from tests.api.conftest import Run, runs
from tests.apis import Api, Request
from tests.conftest import Chores
from tests.mirrors import registry_mirror
from tests.rates import RatesServer
from tests.worlds import at, configmap, content, exchange_rate, rule, secret


@pytest.fixture
def team(api: Api) -> str:
    """Create one source of each kind and a rule for each; return the target namespace."""
    home, team = api.namespace("home"), api.namespace("team")
    api.create(configmap(home))
    api.create(secret(home))
    api.create(rule("settings", home, team))
    api.create(rule("logins", home, team, ruleType="secret"))
    api.mark()
    return team


def test_a_client_dry_run_sends_no_write_and_reports_what_the_run_would_do(api: Api, sync: Run, team: str) -> None:
    planned = sync("--dry-run")
    assert api.writes() == []

    done = sync()

    assert planned.report["dryRun"] == "client"
    assert planned.summary == done.summary == {"created": 2}
    assert [r["object"] for r in planned.results] == [r["object"] for r in done.results]


def test_in_a_server_dry_run_each_write_is_checked_and_none_is_stored(api: Api, sync: Run, team: str) -> None:
    ran = sync("--dry-run=server")

    assert (ran.exit_code, ran.report["dryRun"], ran.summary) == (0, "server", {"created": 2})
    assert [write.query["dryRun"] for write in api.writes()] == ["All", "All"]
    assert api.get(at(team, configmap(""))) is None


def test_a_server_dry_run_deletes_nothing(api: Api, sync: Run, team: str) -> None:
    sync()
    copies = [at(team, configmap("")), at(team, secret(""))]
    before = [api.get(each) for each in copies]
    for source in (configmap, secret):
        api.delete(source(f"home-{api.token}"))

    ran = sync("--dry-run=server", "--max-deletes", "2")

    assert (ran.exit_code, ran.summary) == (0, {"deleted": 2})
    assert all(before)
    assert [api.get(each) for each in copies] == before


def test_check_exits_3_while_there_are_findings_and_writes_nothing(api: Api, sync: Run, team: str) -> None:
    assert sync("--check").exit_code == 3
    assert api.writes() == []
    sync()
    assert sync("--check").exit_code == 0


def test_rule_name_selects_one_rule_and_the_copies_of_others_stay(api: Api, sync: Run, team: str) -> None:
    ran = sync("--rule-name", "logins")

    assert [r["object"]["kind"] for r in ran.results] == ["Secret"]
    assert sync("--rule-name", "settings").summary == {"created": 1}
    assert sync("--rule-name", "settings").summary == {"unchanged": 1}


@pytest.mark.parametrize("name", ["misspelt", ""])
def test_an_unknown_rule_name_is_an_error_that_lists_the_rules(sync: Run, team: str, name: str) -> None:
    ran = sync("--rule-name", name)

    assert ran.exit_code == 2
    assert ran.stderr.endswith(f"no CopyratorRule {name!r} in namespace kube-chores; its rules are: logins, settings\n")


def test_a_run_with_rules_from_a_file_reports_only_their_copies(api: Api, sync: Run, team: str, tmp_path: Path) -> None:
    sync()
    file = tmp_path / "rule.yaml"
    file.write_text(yaml.safe_dump(rule("other", f"home-{api.token}", f"none-{api.token}")))

    ran = sync("-f", str(file))

    assert (ran.report["dryRun"], ran.summary) == ("client", {"nothing-selected": 1})


def test_rules_come_from_standard_input_too(api: Api, sync: Run, team: str) -> None:
    text = yaml.safe_dump(rule("settings", f"home-{api.token}", team))

    assert sync("-f", "-", input=text).summary == {"created": 1}


def test_without_rules_the_report_names_the_namespace(sync: Run) -> None:
    ran = sync("-n", "default", output="text")

    assert ran.exit_code == 2
    assert 'cannot list resource "copyrators" in API group "kubechores.dev" in the namespace "default"' in ran.stderr
    ran = sync(output="text")
    assert ran.exit_code == 0
    assert ran.stdout.startswith("sync-copies: no CopyratorRule in namespace kube-chores (0 rules, 0 sources, ")


def test_verbose_shows_unchanged_copies_and_objects_that_are_not_sources(api: Api, sync: Run, team: str) -> None:
    home = f"home-{api.token}"
    api.create(configmap(home, "stamped", labels={"copyrator": "true", **_STAMPED}))
    sync()

    text = sync("-v", output="text").stdout

    assert f"configmap/settings  {team}" in text
    assert "unchanged" in text
    assert "is managed by kube-chores: a copy is never a source" in text
    assert "stamped" not in sync(output="text").stdout


_STAMPED = {"app.kubernetes.io/managed-by": "kube-chores", "kubechores.dev/job": "sync-copies"}


def test_a_diff_shows_values_of_configmaps_and_none_of_secrets(api: Api, sync: Run, team: str) -> None:
    sync()
    api.patch(at(team, configmap("")), {"data": {"a": "by hand"}})
    api.patch(at(team, secret("")), {"data": {"user": None}})

    text = sync("--dry-run", "--diff", output="text").stdout

    assert '~ data.a: "by hand" -> "1"' in text
    assert "+ data.user: ***" in text


def test_messages_go_to_stderr_as_json_lines_with_log_format_json(sync: Run, team: str) -> None:
    ran = sync("--log-format", "json")

    message = json.loads(ran.stderr)
    assert message["level"] == "info"
    assert message["message"].startswith("sync-copies: writing to context ")


def test_a_verifying_run_reads_all_copies_in_full_and_finds_no_drift(api: Api, sync: Run, team: str) -> None:
    sync()
    api.mark()

    assert sync("--verify=content").summary == {"unchanged": 2}
    assert api.writes() == []


def test_metadata_of_a_rule_is_set_on_copies_and_removed_again(api: Api, sync: Run, team: str) -> None:
    home = f"home-{api.token}"
    api.patch(configmap(home), {"metadata": {"labels": {"app": "web"}}})
    settings = rule("settings", home, team)
    api.patch(settings, {"spec": {"metadata": {"labels": {"from": "home"}, "copyLabels": ["app"]}}})
    sync()
    copy = api.read(at(team, configmap("")))
    assert copy["metadata"]["labels"].items() >= {"from": "home", "app": "web"}.items()

    api.patch(settings, {"spec": {"metadata": None}})

    assert sync().summary == {"configured": 1, "unchanged": 1}
    copy = api.read(at(team, configmap("")))
    assert not {"from", "app"} & copy["metadata"]["labels"].keys()
    assert content(copy) == content(configmap(""))
    assert sync().summary == {"unchanged": 2}


def test_two_sources_of_one_name_are_reported_and_neither_is_copied(api: Api, sync: Run, team: str) -> None:
    other = api.namespace("other")
    api.create(configmap(other))
    api.create(rule("other", other, team))

    ran = sync()

    assert ran.exit_code == 2
    assert [r["subjects"] for r in ran.results if r["code"] == "collision"] == [["other", "settings"]]
    assert api.get(at(team, configmap(""))) is None


def test_the_program_runs_as_a_process_of_its_own(api: Api, installed: Path, team: str, chores: Chores) -> None:
    done = chores("sync-copies", "--dry-run", kubeconfig=installed)

    assert done.returncode == 0
    assert done.stdout.endswith(" namespaces)\n")
    assert done.stderr == ""
    assert chores("--version").stdout == "chores, version 0.1.0\n"
    assert "_CHORES_COMPLETE=bash_complete" in chores("completion", "bash").stdout


def test_install_crds_applies_them_once_and_repairs_them(api: Api, chores: Chores) -> None:
    crd = yaml.safe_load(Path("cronjobs/crds/copyrators.yaml").read_text())
    there = api.get(crd) is not None

    first = chores("install-crds", kubeconfig=api.kubeconfig)
    api.patch(crd, {"spec": {"names": {"shortNames": ["other"]}}})
    planned = chores("install-crds", "--check", kubeconfig=api.kubeconfig)
    last = chores("install-crds", kubeconfig=api.kubeconfig)

    assert [done.returncode for done in (first, planned, last)] == [0, 3, 0]
    assert there or first.stdout.endswith("install-crds: 5 serverside-applied (5 definitions)\n")
    assert "install-crds (dry run): 4 unchanged, 1 serverside-applied (5 definitions)\n" in planned.stdout
    repaired = api.read(crd)
    assert repaired["spec"]["names"]["shortNames"] == ["copyr", "copyratorrule", "copyratorrules"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dry-run=maybe"], "'maybe' is not one of 'none', 'client', 'server'"),
        (["--context", "nowhere"], "it has no context 'nowhere'"),
        (["-n", "Team/Shop"], "'Team/Shop' is not a valid namespace name"),
        (["-n", ""], "'' is not a valid namespace name"),
        (["--kubeconfig", "/nonexistent"], "kubeconfig /nonexistent cannot be used: the file does not exist"),
        (["-f", "/nonexistent.yaml"], "/nonexistent.yaml: cannot be read: No such file or directory"),
        (["--bogus"], "--bogus"),
    ],
)
def test_invalid_settings_are_logged_without_a_traceback_and_exit_2(
    sync: Run, arguments: list[str], message: str
) -> None:
    ran = sync(*arguments)

    assert (ran.exit_code, ran.stdout) == (2, "")
    assert message in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("job", JOBS)
def test_a_namespace_that_does_not_exist_is_an_error(api: Api, installed: Path, job: str) -> None:
    ran = runs(job, api.kubeconfig)("-n", "platfrom")

    assert (ran.exit_code, ran.stdout) == (2, "")
    (error,) = [line for line in ran.stderr.splitlines() if "--probe" not in line]
    assert error == "error: namespace platfrom does not exist; check --namespace"
    assert api.writes() == []


def test_variables_without_a_prefix_are_those_of_sync_copies_which_prints_them(api: Api, installed: Path) -> None:
    env = {"NAMESPACE": "platfrom", "RULE_NAME": "settings"}

    ran = runs("sync-copies", api.kubeconfig, env)("--dry-run")
    other = runs("farm-pods", api.kubeconfig, env)("--dry-run")

    assert (ran.exit_code, other.exit_code) == (2, 0)
    assert ran.stderr.splitlines() == [
        "sync-copies: the environment sets RULE_NAME=settings",
        "sync-copies: the environment sets NAMESPACE=platfrom",
        "error: namespace platfrom does not exist; check --namespace",
    ]


@pytest.mark.parametrize("job", JOBS)
def test_a_run_without_the_right_to_get_namespaces_continues(api: Api, installed: Path, job: str) -> None:
    account = api.service_account_kubeconfig("kube-chores", job)

    ran = runs(job, account)("-n", "platfrom", "--dry-run")

    assert [each.status for each in namespace_reads(api, "platfrom")] == [403]
    assert "not found" not in ran.stderr


@pytest.mark.parametrize("job", JOBS)
def test_a_run_reads_a_namespace_that_is_given_once_and_no_other(api: Api, installed: Path, job: str) -> None:
    team = api.namespace("team")
    run = runs(job, api.kubeconfig)

    assert run("--dry-run", "-n", team).exit_code == 0
    assert len(namespace_reads(api, team)) == 1
    api.mark()
    run("--dry-run")
    assert namespace_reads(api, "") == []


@pytest.mark.parametrize(
    ("job", "obj"),
    [
        ("sync-copies", rule("a", "home", "team")),
        ("fetch-rates", exchange_rate("")),
        ("mirror-audit", registry_mirror()),
    ],
)
def test_a_run_with_files_needs_no_namespace(
    api: Api, installed: Path, rates: RatesServer, tmp_path: Path, job: str, obj: Any
) -> None:
    file = tmp_path / "object.yaml"
    file.write_text(yaml.safe_dump(obj | {"metadata": {"name": obj["metadata"]["name"]}}))

    ran = runs(job, api.kubeconfig, rates.env())("-n", "platfrom", "-f", str(file))

    assert ran.exit_code == 0
    assert namespace_reads(api, "platfrom") == []


def namespace_reads(api: Api, name: str) -> list[Request]:
    """The GET requests of a namespace by its name, or of any namespace if that is empty."""
    prefix = f"/api/v1/namespaces/{name}"
    return [each for each in api.requests() if each.path.startswith(prefix) and each.path.count("/") == 4]
