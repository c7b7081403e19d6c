"""`chores status` against the embedded and the real API server."""

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jobs.__main__ import chores
from jobs.kit.api import transport
from jobs.kit.values.registry import JOBS
from tests.api.conftest import Run, with_rule
from tests.api.test_view import reads, user
from tests.apis import Api, wait_for
from tests.mirrors import Mirrors, registry_mirror
from tests.worlds import (
    cluster_role_ref,
    configmap,
    exchange_rate,
    limit_range,
    namespace_object,
    network_policy,
    resource_quota,
    role_binding,
    rule,
    secret,
    service_account,
)

NAMESPACE = "kube-chores"


def status(api: Api, *arguments: str, namespace: str = NAMESPACE) -> Result:
    """Run `chores status` as admin."""
    return CliRunner().invoke(chores, ["status", "-n", namespace, *arguments], env={"KUBECONFIG": str(api.kubeconfig)})


def document(api: Api, *arguments: str, namespace: str = NAMESPACE) -> Any:
    done = status(api, "-o", "json", *arguments, namespace=namespace)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def job(found: Any, name: str = "sync-copies") -> Any:
    return next(each for each in found["jobs"] if each["name"] == name)


def late(found: Any, name: str = "sync-copies") -> list[str]:
    """Why a job is late. Others may be late as well, if the suite takes some minutes."""
    return [each["reason"] for each in found["problems"] if (each["job"], each["code"]) == (name, "job-late")]


def test_status_reports_what_is_wrong_and_writes_nothing(api: Api, sync: Run, home: str, team: str) -> None:
    source = with_rule(api, configmap(home), "settings")
    other = api.create(configmap(team, labels={}))
    sync()
    stray = api.create({**rule("stray", home, "*"), "metadata": {"name": "stray", "namespace": team}})
    api.create(exchange_rate(team))
    api.mark()

    found = document(api)

    assert api.writes() == []
    assert {each["code"] for each in found["problems"]} >= {"conflict", "not-read"}
    (own,) = [each for each in found["rules"] if each["name"] == "settings"]
    assert (own["ready"], own["reason"], own["conflicts"], own["namespaces"][team]) == (
        "False",
        "Conflict",
        1,
        "conflict",
    )
    assert team in found["namespaces"]
    assert job(found)["schedule"] == "* * * * *"
    assert [each["name"] for each in found["rates"] if each["namespace"] == team] == ["usd"]
    assert status(api, "--check").exit_code == 3
    (todo,) = [each["todo"] for each in found["problems"] if each["code"] == "conflict"]
    command = todo.rpartition("; see chores ")[2].split()
    explained = CliRunner().invoke(chores, command, env={"KUBECONFIG": str(api.kubeconfig)})
    assert (explained.exit_code, "conflict" in explained.stdout) == (0, True), explained.output
    assert source and other and stray


def test_the_role_kube_chores_view_is_enough_for_all_but_secrets(api: Api, sync: Run, home: str, team: str) -> None:
    with_rule(api, configmap(home), "settings")
    with_rule(api, secret(home), "logins")
    sync()
    name = user(api, "kube-chores-view", "kube-chores-farm-view")
    wait_for(lambda: reads(api, name, "/apis/batch/v1/cronjobs"), "the rights of the user")
    api.mark()

    found = document(api, "--as", name)

    assert found["notes"] == []
    assert {"you cannot list secrets" in note for note in job(found)["notes"]} == {True}
    assert {each["name"]: (each["copies"], each["desiredCopies"]) for each in found["rules"]}["settings"] == (1, 1)
    denied = {each.path.rpartition("/")[2] for each in api.requests() if each.status == 403}
    assert denied <= {"secrets", "roll-workloads-key"}


MAKERS = (network_policy, limit_range, resource_quota, role_binding, service_account)


def test_the_matrix_and_the_problems_have_copies_of_each_kind(api: Api, sync: Run, home: str, team: str) -> None:
    other = api.namespace("other")
    sources = [api.create(make(home)) for make in MAKERS]
    for make, source in zip(MAKERS, sources, strict=True):
        api.create(make(team, labels={}))
        api.create(rule(f"{source['kind'].lower()}s", home, [team, other], ruleType=source["kind"].lower()))
    sync()
    reader = user(api, "kube-chores-view", "kube-chores-farm-view")
    wait_for(lambda: reads(api, reader, "/apis/batch/v1/cronjobs"), "the rights of the user")

    found, page, limited = document(api, "-v"), status(api, "-o", "html").stdout, document(api, "--as", reader)

    assert len(job(limited)["notes"]) == len(MAKERS)
    for source in sources:
        kind, plural = source["kind"].lower(), api.path(source, named=False).rpartition("/")[2]
        (own,) = [each for each in found["rules"] if each["name"] == f"{kind}s"]
        assert (own["type"], own["copies"], own["conflicts"]) == (kind, 1, 1)
        assert own["namespaces"] == {team: "conflict", other: "unchanged"}
        (conflict,) = [each for each in found["problems"] if each["subjects"] == [f"{kind}s"]]
        assert conflict["object"]["kind"] == source["kind"]
        assert f"{kind}/{source['metadata']['name']}" in page
        remedy = f"you cannot list {plural}; bind the ClusterRole kube-chores-view-{plural}"
        assert len([note for note in job(limited)["notes"] if remedy in note]) == 1
        (own,) = [each for each in limited["rules"] if each["name"] == f"{kind}s"]
        assert own["namespaces"] == {team: "conflict"}, "what the last run reported"


def test_a_refused_source_is_a_problem_with_what_to_do(api: Api, sync: Run, home: str, team: str) -> None:
    api.create(configmap(home, data={"b": "1"}))
    api.create(rule("keys", home, team, keys={"include": ["a"]}))
    sync()

    found = document(api)

    (problem,) = [each for each in found["problems"] if each["subjects"] == ["keys"]]
    assert (problem["code"], problem["severity"], problem["object"]["namespace"]) == ("refused", "warning", home)
    assert problem["reason"] == "it has no key a; correct the source, or spec.keys of the rule"
    assert problem["todo"].startswith("correct the source, spec.keys of the rule, or the rights of the job")
    assert status(api, "--check").exit_code == 3
    assert "refused" in status(api, "-o", "html").stdout


def test_a_cluster_role_that_the_job_cannot_bind_is_a_problem_that_only_its_status_reports(
    api: Api, sync: Run, home: str, team: str
) -> None:
    api.create(role_binding(home))
    api.create(rule("things", home, team, ruleType="rolebinding"))
    sync()
    api.create(role_binding(home, "admins", roleRef=cluster_role_ref("admin")))
    api.create(role_binding(team, "admins", labels={}, roleRef=cluster_role_ref("admin")))
    sync()

    found = document(api)

    problems = [each for each in found["problems"] if each["subjects"] == ["things"] and each["code"] == "refused"]
    assert [each["object"]["kind"] for each in problems] == ["CopyratorRule"]
    assert "no right to bind ClusterRole admin; add it to resourceNames" in problems[0]["reason"]


def test_a_user_without_rights_gets_notes(api: Api, installed: Path) -> None:
    name = user(api)

    done = status(api, "--as", name)

    assert done.exit_code == 0
    assert "unknown" in done.stdout
    assert "the status is unknown: you cannot list cronjobs" in done.stdout
    assert status(api, "--as", name, "--check").exit_code == 2
    assert "you cannot list cronjobs; bind the ClusterRole kube-chores-view" in " ".join(done.stdout.split())


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)
def test_the_installation_is_found(api: Api, installed: Path) -> None:
    default = {"KUBECONFIG": str(api.kubeconfig)}  # its namespace is default
    first = CliRunner().invoke(chores, ["status", "-o", "json"], env=default)
    cronjob = api.call("GET", f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/sync-copies")
    for name in ("other", "another"):
        api.create(namespace_object(name))
        metadata = {key: cronjob["metadata"][key] for key in ("name", "labels")}
        api.create({**cronjob, "metadata": {**metadata, "namespace": name}})
    second = CliRunner().invoke(chores, ["status", "-o", "json", "-n", "other"], env=default)
    for each in api.items("batch/v1", "CronJob", NAMESPACE):
        api.delete(each)
    third = CliRunner().invoke(chores, ["status"], env=default)
    for each in api.items("batch/v1", "CronJob", "another"):
        api.delete(each)
    only = json.loads(CliRunner().invoke(chores, ["status", "-o", "json"], env=default).stdout)
    given = json.loads(CliRunner().invoke(chores, ["status", "-o", "json", "-n", "default"], env=default).stdout)

    assert json.loads(first.stdout)["namespace"] == NAMESPACE
    assert [each["state"] for each in json.loads(second.stdout)["jobs"]] == [
        "never",
        *["not-installed"] * (len(JOBS) - 1),
    ]
    assert "namespace other is shown: no other has CronJobs of kube-chores" in " ".join(only["notes"])
    assert (given["namespace"], "it is in other" in given["unknown"]) == ("default", True)
    assert third.exit_code == 2
    assert "kube-chores is installed in namespaces another, other; choose one with -n" in third.stderr


def event(api: Api, minute: int, reason: str, message: str) -> None:
    """Create an Event of the CronJob sync-copies."""
    at = {"name": reason.lower(), "namespace": NAMESPACE}
    about = {"kind": "CronJob", "name": "sync-copies", "namespace": NAMESPACE}
    time = f"2100-01-01T00:{minute}:00Z"
    fields = {"type": "Warning", "reason": reason, "message": message, "lastTimestamp": time}
    api.create({"apiVersion": "v1", "kind": "Event", "metadata": at, "involvedObject": about, **fields})


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)  # a real controller writes Events and times, too
def test_an_event_explains_why_a_cronjob_creates_no_jobs_until_its_next_run(api: Api, installed: Path) -> None:
    cronjob = api.call("GET", f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/sync-copies")
    for minute, reason in ((10, "FailedCreate"), (20, "UnexpectedJob")):
        event(api, minute, reason, f"the message of {reason}")

    def problems(last: str, success: str = "2100-01-01T00:00:00Z") -> list[str]:
        api.patch_status(cronjob, {"lastScheduleTime": last, "lastSuccessfulTime": success})
        return late(document(api))

    assert problems("2100-01-01T00:00:00Z") == ["no run starts: the message of FailedCreate"]
    assert problems("2100-01-01T00:11:00Z") == []
    assert problems("2100-01-01T00:00:00Z", success="2100-01-01T00:11:00Z") == [], "a run by hand succeeded"


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)
def test_an_event_about_a_schedule_or_time_zone_that_was_changed_does_not_count(api: Api, installed: Path) -> None:
    """The messages are those of https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/cronjob."""
    cronjob = api.call("GET", f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/sync-copies")
    # Without a success, a CronJob that exists for 10 minutes is late, and the suite may take longer.
    api.patch_status(cronjob, dict.fromkeys(("lastScheduleTime", "lastSuccessfulTime"), "2100-01-01T00:00:00Z"))
    messages = {
        "FailedCreate": "Error creating job: exceeded quota",
        "UnknownTimeZone": 'invalid timeZone: "Mars/Base": unknown time zone Mars/Base',
        "UnparseableSchedule": 'unparseable schedule: "@never" : unrecognized descriptor: @never',
        "InvalidSchedule": "invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second",
    }

    def problems(schedule: str, zone: str | None) -> list[str]:
        api.patch(cronjob, {"spec": {"schedule": schedule, "timeZone": zone}})
        return late(document(api))

    for minute, (reason, message) in enumerate(messages.items(), 10):
        event(api, minute, reason, message)
    assert problems("0 0 31 2 *", None) == [f"no run starts: {messages['InvalidSchedule']}"]
    assert problems("@never", "Mars/Base") == [f"no run starts: {messages['UnparseableSchedule']}"]
    assert problems("* * * * *", "Mars/Base") == [f"no run starts: {messages['UnknownTimeZone']}"]
    assert problems("* * * * *", "Etc/UTC") == [f"no run starts: {messages['FailedCreate']}"]
    api.delete({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "failedcreate", "namespace": NAMESPACE}})
    assert [problems("* * * * *", "Etc/UTC"), problems("* * * * *", None)] == [[], []]


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)
def test_without_crds_the_status_is_a_note(api: Api) -> None:
    done = status(api, namespace="default")

    assert done.exit_code == 0
    assert done.stdout.count("not-installed") == len(JOBS)
    assert "the status is unknown: kube-chores is not installed in namespace default" in done.stdout
    assert status(api, "--check", namespace="default").exit_code == 2
    assert "the CRD copyrators.kubechores.dev is not installed" in " ".join(done.stdout.split())


@pytest.mark.usefixtures("installed")
def test_a_claim_that_is_kept_after_its_mirror_is_no_problem(api: Api) -> None:
    mirrors = Mirrors(api)
    removed = mirrors.of(registry_mirror(mirrors.name()))
    mirrors.apply(removed.claim.document())

    def codes() -> list[str]:  # the real CronJobs have no node to run on
        found = [each["code"] for each in document(api)["problems"] if each["job"] == "mirror-audit"]
        return [each for each in found if not each.startswith("job-")]

    assert codes() == []
    mirrors.apply(removed.headless_service.document())
    assert codes() == ["orphan"]


def test_a_rate_has_its_date_and_the_time_of_its_last_change(api: Api, fetch: Run, team: str) -> None:
    api.create(exchange_rate(team))
    fetch()

    (rate,) = [each for each in document(api)["rates"] if each["namespace"] == team]

    assert (rate["ready"], rate["reason"], rate["currency"]) == ("True", "Current", "USD")
    assert rate["date"] < rate["lastChange"] <= document(api)["time"]


def test_jobs_are_evaluated_with_the_options_of_their_cronjobs(api: Api, sync: Run, home: str, team: str) -> None:
    source = with_rule(api, configmap(home), "settings")
    for number in range(11):
        api.create(configmap(home, f"c-{number}"))
    sync()
    for number in range(11):
        api.delete({**source, "metadata": {**source["metadata"], "name": f"c-{number}"}})
    braked = document(api)["problems"]
    settings = {"CHORES": "", "MAX_DELETES": "11", "NO_OPTION": "\n", "MAX_OBJECTS": "not a number"}
    api.create(configmap(NAMESPACE, "kube-chores-settings", labels={}, data={"MAX_DELETES": "1"}))
    api.create(configmap(NAMESPACE, "sync-copies-settings", labels={}, data=settings))

    lifted = document(api)["problems"]

    assert [each["code"] for each in braked if each["code"] == "brake"] == ["brake"]
    assert [each for each in lifted if each["code"] == "brake"] == []


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)
def test_the_status_reads_no_contents_and_probes_nothing_whatever_the_settings_are(
    api: Api, sync: Run, home: str, team: str
) -> None:
    def requests() -> list[tuple[str, str]]:
        api.mark()
        document(api)
        return sorted((each.method, each.path) for each in api.requests())

    with_rule(api, configmap(home), "settings")
    sync()
    Mirrors(api).healthy()
    before = requests()
    for job, data in (("sync-copies", {"VERIFY": "content"}), ("mirror-audit", {"PROBE": "service-proxy"})):
        api.create(configmap(NAMESPACE, f"{job}-settings", labels={}, data=data))

    assert requests() == before
    assert [path for _, path in before if "/proxy" in path] == []


def test_the_time_is_that_of_the_server(api: Api, installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "local_time", lambda: datetime(2030, 1, 1, tzinfo=timezone.utc))

    assert datetime.fromisoformat(document(api)["time"].replace("Z", "+00:00")) < datetime.now(timezone.utc)


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)
def test_yaml_is_the_same_document_and_html_a_page(api: Api, installed: Path) -> None:
    import yaml

    one, other = yaml.safe_load(status(api, "-o", "yaml").stdout), document(api)

    assert {**one, "time": ""} == {**other, "time": ""}
    assert status(api, "-o", "html").stdout.lower().startswith("<!doctype html>")
