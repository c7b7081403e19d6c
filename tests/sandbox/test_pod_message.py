"""Runs that succeed although some of their writes failed: the message of their pod, and `chores status`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jobs.__main__ import chores
from kubesandbox import Fault, Sandbox
from tests.api.conftest import Run, runs, with_message
from tests.apis import Api, sandbox_api
from tests.every_job import status as scenarios
from tests.farm import FARMED, pod
from tests.hostile_text import HOSTILE, left_in
from tests.rates import RatesServer, serve
from tests.workloads import KEY_FLAG, set_key, settle, workload
from tests.worlds import by_name, configmap, exchange_rate, namespace_object, rule

DENIED = 'admission webhook "owner.example.com" denied the request: '
DEPLOYMENTS = "/apis/apps/v1/namespaces/*/deployments/*"
FORGED = "metrics-not-sent: "
KUBELET_BYTES, STATUS_CHARACTERS = 4096, 2000


@pytest.fixture
def api(sandbox: Sandbox, tmp_path: Path) -> Api:
    api = sandbox_api(sandbox, tmp_path)
    set_key(api)
    for name in ("home", "team-a", "team-b"):
        api.create(namespace_object(name, labels=FARMED))
    scenarios.all_succeeded(api)
    return api


@pytest.fixture
def message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return with_message(monkeypatch, tmp_path)


@pytest.fixture
def rates() -> Iterator[RatesServer]:
    with serve() as server:
        yield server


@pytest.fixture
def roll(api: Api) -> Run:
    """Run roll-workloads, waiting for nothing."""
    run = runs("roll-workloads", api.kubeconfig)
    return lambda *arguments: run(*KEY_FLAG, "--settle", "0", "--cool-down", "0", *arguments)


@pytest.fixture
def sync(api: Api) -> Run:
    return runs("sync-copies", api.service_account_kubeconfig("kube-chores", "sync-copies"))


def webs(api: Api, *places: tuple[str, str]) -> None:
    """Create workloads by namespace and name."""
    for namespace in sorted({namespace for namespace, _ in places}):
        api.create(configmap(namespace))
    for place in places:
        settle(api, api.create(workload(*place)))


def refuse(sandbox: Sandbox, method: str, path: str, message: str = f"{DENIED}not here") -> None:
    sandbox.inject(Fault(method, path, status=403, message=message, times=None))


def problems(api: Api, job: str, message: str) -> list[dict[str, Any]]:
    """Return the problems of `chores status` after a run of a job whose pod left this message."""
    scenarios.succeeded(api, job, message)
    done = CliRunner().invoke(chores, ["status", "-o", "json"], env={"KUBECONFIG": str(api.kubeconfig)})
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)["problems"]
    return found


def test_a_refused_roll_of_a_run_that_succeeds_is_a_problem(
    api: Api, sandbox: Sandbox, roll: Run, message: Path
) -> None:
    webs(api, ("team-a", "web"), ("team-b", "web"))
    refuse(sandbox, "PATCH", DEPLOYMENTS.replace("*", "team-a", 1))

    ran = roll()

    assert (ran.exit_code, ran.summary) == (0, {"annotated": 1, "failed": 1})
    (found,) = problems(api, "roll-workloads", message.read_text())
    assert (found["severity"], found["job"], found["code"]) == ("warning", "roll-workloads", "writes-failed")
    assert found["object"] == {"kind": "CronJob", "name": "roll-workloads", "namespace": "kube-chores"}
    what = f"1 write failed: deployment/web in namespace team-a: {DENIED}not here"
    assert found["reason"] == f"run roll-workloads-29543221 succeeded, but {what}"
    log = "kubectl logs -n kube-chores job/roll-workloads-29543221"
    assert found["todo"] == f"correct what the message names; the next run tries again; see {log}"
    shown = scenarios.run(api, "--check")
    assert "warning  roll-workloads  writes-failed" in shown and shown.endswith("(exit code 3)"), shown

    sandbox.clear_faults()
    message.write_text("")
    assert roll().summary == {"annotated": 1, "unchanged": 1}
    assert message.read_text() == ""


@pytest.mark.parametrize(
    "text",
    [
        HOSTILE,
        f"no\n{FORGED}forged\n\r{FORGED}",
        f"no\u2028{FORGED}",
        "x" * 100_000,
        "\u4e2d" * 30_000,
        "\x1b" * 30_000,
    ],
    ids=["hostile", "lines", "separator", "100 kB", "three bytes", "escapes"],
)
def test_the_text_of_a_webhook_is_one_short_line(
    api: Api, sandbox: Sandbox, roll: Run, message: Path, tmp_path: Path, text: str
) -> None:
    """Next to long messages about metrics, too."""
    places = [(f"team-{number}", "w" * 63) for number in range(4)]
    for namespace, _ in places:
        api.create(namespace_object(namespace))
    webs(api, *places, ("home", "web"))
    refuse(sandbox, "PATCH", DEPLOYMENTS.replace("*", "team-*", 1), f"{DENIED}{text}")
    file = tmp_path / f"{80 * chr(0x4E2D)}.prom"
    file.write_text("other 1\n")

    ran = roll("--metrics-file", str(file), "--push-gateway", f"http://127.0.0.1:1/{300 * 'x'}")

    left = message.read_bytes()
    lines = left.decode().split("\n")
    assert (ran.exit_code, ran.summary) == (0, {"annotated": 1, "failed": 4})
    assert [line.partition(":")[0] for line in lines] == ["writes-failed", "metrics-not-sent", "metrics-not-sent"]
    assert len(left) <= min(KUBELET_BYTES, STATUS_CHARACTERS)
    assert left_in(left.decode()) == []
    found = {each["reason"].partition(", but ")[2] for each in problems(api, "roll-workloads", left.decode())}
    assert found == {
        lines[0].removeprefix("writes-failed: "),
        *(line.replace("metrics-not-sent", "no alert can see it") for line in lines[1:]),
    }


def test_of_many_failures_some_of_each_namespace_are_named(
    api: Api, sandbox: Sandbox, roll: Run, message: Path
) -> None:
    many = [("team-a", f"web-{number:02}") for number in range(20)]
    webs(api, *many, ("team-b", "zoo"), ("home", "web"))
    refuse(sandbox, "PATCH", DEPLOYMENTS.replace("*", "team-*", 1))

    assert roll().exit_code == 0

    text = message.read_text()
    assert text.startswith("writes-failed: 21 writes failed: deployment/web-00 in namespace team-a: ")
    named = [each.partition(" in namespace ")[::2] for each in text.split("deployment/")[1:]]
    assert [(name, rest.partition(":")[0]) for name, rest in named] == [
        ("web-00", "team-a"),
        ("zoo", "team-b"),
        ("web-01", "team-a"),
    ]
    assert text.endswith("not here and 18 more")


def test_a_farm_pod_that_a_quota_refuses_is_a_problem(api: Api, sandbox: Sandbox, message: Path) -> None:
    for namespace in ("team-a", "team-b"):
        api.create(pod(namespace, "web"))
    path = "/apis/kubechores.dev/v1/namespaces/team-a/farmpods"
    quota = 'farmpods.kubechores.dev "farm-web" is forbidden: exceeded quota: none, requested: 1, used: 0, limited: 0'
    refuse(sandbox, "POST", path, quota)

    assert runs("farm-pods", api.kubeconfig)().exit_code == 0

    (found,) = problems(api, "farm-pods", message.read_text())
    assert (found["job"], found["code"]) == ("farm-pods", "writes-failed")
    assert found["reason"].endswith(f"1 write failed: farmpod/farm-web in namespace team-a: {quota}")


def test_a_copy_whose_rule_reports_the_failure_is_one_problem(
    api: Api, sandbox: Sandbox, sync: Run, message: Path
) -> None:
    api.create(configmap("home"))
    api.create(rule("settings", "home", "team-*"))
    refuse(sandbox, "POST", "/api/v1/namespaces/team-a/configmaps")

    assert sync().summary == {"created": 1, "failed": 1}

    assert [each["code"] for each in problems(api, "sync-copies", message.read_text())] == ["denied"]


def test_a_deletion_whose_rule_reports_the_failure_is_one_problem(
    api: Api, sandbox: Sandbox, sync: Run, message: Path
) -> None:
    """No copy of the rule is desired."""
    for name, target in (("settings", "team-b"), ("other", "team-a")):
        api.create(configmap("home", name))
        api.create(by_name(name, "home", target, names=[name]))
    assert sync().summary == {"created": 2}
    api.patch(namespace_object("team-a"), {"metadata": {"annotations": {"kubechores.dev/copies": "false"}}})
    refuse(sandbox, "DELETE", "/api/v1/namespaces/team-a/configmaps/other")

    assert sync().summary == {"failed": 1, "unchanged": 1}

    assert [each["code"] for each in problems(api, "sync-copies", message.read_text())] == ["denied"]


def test_an_orphan_whose_rule_was_deleted_is_a_problem(api: Api, sandbox: Sandbox, sync: Run, message: Path) -> None:
    """No status reports it."""
    for name in ("settings", "other"):
        api.create(configmap("home", name))
        api.create(by_name(name, "home", "team-*", names=[name]))
    sync()
    api.delete(rule("other", "home", "team-*"))
    refuse(sandbox, "DELETE", "/api/v1/namespaces/team-a/configmaps/other")

    assert sync().summary == {"deleted": 1, "failed": 1, "unchanged": 2}

    (found,) = problems(api, "sync-copies", message.read_text())
    assert (found["job"], found["code"]) == ("sync-copies", "writes-failed")
    assert "1 write failed: configmap/other in namespace team-a: " in found["reason"]


@pytest.mark.parametrize(
    ("path", "codes"),
    [
        ("/api/v1/namespaces/team-a/configmaps", ["denied"]),
        ("/apis/kubechores.dev/v1/namespaces/team-a/exchangerates/usd/status", ["writes-failed"]),
        ("/api/v1/namespaces/team-a/events", []),
    ],
    ids=["its ConfigMap", "its status", "its Event"],
)
def test_a_refused_write_for_a_rate_is_one_problem(
    api: Api, sandbox: Sandbox, message: Path, rates: RatesServer, path: str, codes: list[str]
) -> None:
    """A status that was not written reports nothing, and an Event has only what the status has."""
    for namespace in ("team-a", "team-b"):
        api.create(exchange_rate(namespace))
    refuse(sandbox, "*", path)

    ran = runs("fetch-rates", api.kubeconfig, rates.env())()

    failed = [(each["object"]["kind"], each["code"]) for each in ran.results if each["outcome"] == "failed"]
    assert (ran.exit_code, failed) == (0, [("ConfigMap" if codes == ["denied"] else "ExchangeRate", "denied")])
    assert [each["code"] for each in problems(api, "fetch-rates", message.read_text())] == codes


@pytest.mark.parametrize(
    ("arguments", "exit_code"), [(("--dry-run=server",), 0), (("-n", "team-a"), 2)], ids=["dry run", "failure"]
)
def test_a_dry_run_or_a_failure_leaves_no_message(
    api: Api, sandbox: Sandbox, message: Path, arguments: tuple[str, ...], exit_code: int
) -> None:
    for namespace in ("team-a", "team-b"):
        api.create(pod(namespace, "web"))
    refuse(sandbox, "POST", "/apis/kubechores.dev/v1/namespaces/team-a/farmpods")

    ran = runs("farm-pods", api.kubeconfig)(*arguments)

    assert (ran.exit_code, ran.summary["failed"]) == (exit_code, 1)
    assert message.read_text() == ""
