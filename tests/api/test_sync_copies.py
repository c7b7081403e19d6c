"""sync-copies with the rights of its ServiceAccount: what users do, on both API servers."""

import base64
from pathlib import Path

import pytest
import yaml

from jobs.kit.data.objects import ObjectReducer
from jobs.kit.run.apply import _Writer
from jobs.kit.values.model import ObjectKey
from tests.api.conftest import Run, copied, with_rule
from tests.apis import Api, wait_for
from tests.canary import canary
from tests.every_job.sync_copies import STAMP
from tests.worlds import at, configmap, content, encoded, rule, secret


def test_a_first_sweep_creates_one_copy_in_each_target_except_its_own(api: Api, sync: Run) -> None:
    home, team_a, team_b = api.namespace("home"), api.namespace("team-a"), api.namespace("team-b")
    source = with_rule(api, secret(home))
    before = api.get(at(home, source))

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"created": 2})
    for namespace in (team_a, team_b):
        copy = api.get(at(namespace, source))
        assert copy and content(copy) == content(source)
        assert copy["metadata"]["labels"].items() >= STAMP.items()
        assert "copyrator" not in copy["metadata"]["labels"]
        assert copy["metadata"]["annotations"]["kubechores.dev/source"] == f"{home}/login"
        assert copy["metadata"]["annotations"]["kubechores.dev/rule"] == "kube-chores/logins"
    assert api.get(at(home, source)) == before


def test_a_converged_sweep_writes_nothing_even_after_a_change_of_metadata(api: Api, sync: Run) -> None:
    home, team = api.namespace("home"), api.namespace("team")
    source = copied(api, sync, configmap(home))
    api.patch(source, {"metadata": {"annotations": {"note": "new"}}})
    api.patch(at(team, source), {"metadata": {"labels": {"owner": "somebody"}}})
    api.mark()

    ran = sync()

    assert (ran.exit_code, ran.summary, ran.results) == (0, {"unchanged": 1}, [])
    assert api.writes() == []


def test_changed_sources_update_all_their_copies(api: Api, sync: Run, home: str, team: str) -> None:
    settings, login = api.create(configmap(home)), api.create(secret(home))
    api.create(rule("settings", home, f"*-{api.token}"))
    api.create(rule("logins", home, f"*-{api.token}", ruleType="secret"))
    sync()
    api.patch(settings, {"data": {"a": "changed", "b": None, "c": "new"}})
    api.patch(login, {"data": {"password": encoded(canary())}})

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"configured": 2})
    assert [result["reason"] for result in ran.results] == [
        f"source {home}/settings changed",
        f"source {home}/login changed",
    ]
    for source in (settings, login):
        assert content(api.get(at(team, source))) == content(api.get(source))


def test_a_new_namespace_gets_its_copies_and_the_others_stay_untouched(api: Api, sync: Run, home: str) -> None:
    api.namespace("team-a")
    source = copied(api, sync, configmap(home))
    added = api.namespace("team-b")
    api.mark()

    ran = sync()

    assert ran.summary == {"created": 1, "unchanged": 1}
    assert [write.path for write in api.copy_writes()] == [f"/api/v1/namespaces/{added}/configmaps"]
    assert content(api.get(at(added, source))) == content(source)


def test_an_extra_key_is_removed_and_labels_of_others_stay(api: Api, sync: Run, home: str, team: str) -> None:
    source = copied(api, sync, configmap(home))
    theirs = {"labels": {"team": "blue"}, "annotations": {"note": "keep"}, "finalizers": ["example.com/keep"]}
    api.patch(at(team, source), {"metadata": theirs, "data": {"extra": "x"}})

    ran = sync()

    copy = api.get(at(team, source))
    assert ran.summary == {"configured": 1}
    assert copy and content(copy) == content(source)
    assert copy["metadata"]["labels"]["team"] == "blue"
    assert copy["metadata"]["annotations"]["note"] == "keep"
    assert copy["metadata"]["finalizers"] == ["example.com/keep"]
    api.patch(at(team, source), {"metadata": {"finalizers": None}})


def test_binary_data_is_copied_unchanged(api: Api, sync: Run, home: str, team: str) -> None:
    binary = base64.b64encode(bytes(range(256))).decode()
    source = with_rule(api, configmap(home, binaryData={"all-bytes": binary}, data={"text": "ünïcödé\n\u2028"}))

    assert sync().summary == {"created": 1}
    assert content(api.get(at(team, source))) == content(source)
    assert sync().summary == {"unchanged": 1}


def test_a_configmap_near_the_limit_of_1_mib_is_copied(api: Api, sync: Run, home: str, team: str) -> None:
    source = with_rule(api, configmap(home, data={"big": "x" * ((1 << 20) - 100)}))

    assert sync().summary == {"created": 1}
    assert content(api.get(at(team, source))) == content(source)
    assert sync().summary == {"unchanged": 1}


def test_globs_and_the_namespace_selector_narrow_the_targets(api: Api, sync: Run, home: str) -> None:
    chosen = api.namespace("team-a", labels={"tier": "web"})
    api.namespace("team-b")
    api.namespace("team-x", labels={"tier": "web"})
    api.namespace("other", labels={"tier": "web"})
    source = api.create(configmap(home))
    targets = {
        "include": [f"team-?-{api.token}"],
        "exclude": ["team-x*"],
        "namespaceSelector": {"matchLabels": {"tier": "web"}},
    }
    api.create(rule("settings", home, "", targets=targets))

    ran = sync()

    assert [result["object"]["namespace"] for result in ran.results] == [chosen]
    assert content(api.get(at(chosen, source))) == content(source)


def test_the_default_target_is_every_active_namespace_except_kube(api: Api, sync: Run, home: str) -> None:
    source = api.create(configmap(home, f"settings-{api.token}"))
    without_targets = rule("everywhere", home, "")
    del without_targets["spec"]["targets"]
    api.create(without_targets)

    ran = sync("--dry-run")

    namespaces = api.items("v1", "Namespace")
    expected = {
        each["metadata"]["name"]
        for each in namespaces
        if each["status"]["phase"] == "Active" and not each["metadata"]["name"].startswith("kube-")
    } - {source["metadata"]["namespace"]}
    assert {result["object"]["namespace"] for result in ran.results} == expected


def test_match_expressions_select_sources(api: Api, sync: Run, home: str, team: str) -> None:
    for name, labels in {
        "in": {"stage": "prod"},
        "not": {"stage": "prod", "skip": ""},
        "out": {"stage": "dev"},
    }.items():
        api.create(configmap(home, name, labels=labels))
    expressions = [
        {"key": "stage", "operator": "In", "values": ["prod", "canary"]},
        {"key": "skip", "operator": "DoesNotExist"},
        {"key": "stage", "operator": "NotIn", "values": ["dev"]},
        {"key": "stage", "operator": "Exists"},
    ]
    api.create(rule("settings", home, f"*-{api.token}", selector={"matchExpressions": expressions}))

    assert [result["object"]["name"] for result in sync().results] == ["in"]


def test_a_missing_crd_is_reported_and_a_file_needs_none(api: Api, sync: Run, tmp_path: Path) -> None:
    home, team = api.namespace("home"), api.namespace("team")
    api.create(configmap(home))
    crd = yaml.safe_load(Path("cronjobs/crds/copyrators.yaml").read_text())
    api.delete(crd)
    wait_for(lambda: api.get(crd) is None, "the CRD to be deleted")
    wait_for(lambda: api.request("GET", "/apis/kubechores.dev/v1/copyrators")[0] == 404, "the API to forget it")

    ran = sync()
    assert ran.exit_code == 2
    assert "chores install-crds" in ran.stderr
    assert "kubectl apply -k cronjobs/crds" in ran.stderr

    file = tmp_path / "rule.yaml"
    file.write_text(yaml.safe_dump(rule("settings", home, f"*-{api.token}")))
    ran = sync("-f", str(file))
    assert (ran.exit_code, ran.report["dryRun"], ran.summary) == (0, "client", {"created": 1})
    assert api.get(at(team, configmap(home))) is None


@pytest.mark.parametrize(
    ("binding", "missing"),
    [
        ("ClusterRoleBinding/kube-chores-sync-copies-secrets", 'cannot list resource "secrets"'),
        ("ClusterRoleBinding/kube-chores-sync-copies", 'cannot list resource "namespaces"'),
        ("RoleBinding/sync-copies", 'cannot list resource "copyrators"'),
    ],
)
def test_a_missing_permission_is_named_and_not_retried(api: Api, sync: Run, binding: str, missing: str) -> None:
    home = api.namespace("home")
    api.namespace("team")
    with_rule(api, secret(home))
    kind, _, name = binding.partition("/")
    api.delete(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "kube-chores"},
        }
    )
    wait_for(lambda: sync().exit_code == 2, "the authorizer to notice")
    denied = sync()

    assert denied.exit_code == 2
    assert missing in denied.stdout.replace('\\"', '"') + denied.stderr
    assert api.copy_writes() == []


def test_a_replacement_keeps_labels_of_others_and_leaves_nothing_for_the_next_run(api: Api, sync: Run) -> None:
    home, team = api.namespace("home"), api.namespace("team")
    source = copied(api, sync, configmap(home, data={"a": "1"}, immutable=True))
    api.patch(at(team, source), {"metadata": {"labels": {"team": "blue"}}})
    api.delete(source)
    api.create(configmap(home, data={"a": "2"}, immutable=True))

    assert sync().summary == {"replaced": 1}
    copy = api.get(at(team, source))
    assert copy and "team" not in copy["metadata"]["labels"]
    api.mark()
    assert sync().summary == {"unchanged": 1}
    assert api.writes() == []


# contents of which a run keeps only digests


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep only digests of all contents, as of large ones."""
    monkeypatch.setattr(ObjectReducer.__init__, "__defaults__", (0, None))


@pytest.mark.usefixtures("no_room")
def test_values_that_are_too_large_to_keep_are_read_again_for_each_write(api: Api, sync: Run) -> None:
    home, team, other = (api.namespace(name) for name in ("home", "team-a", "team-b"))
    sources = [api.create(configmap(home)), api.create(secret(home))]
    for kind in ("configmap", "secret"):
        api.create(rule(f"large-{kind}", home, f"team-*-{api.token}", ruleType=kind))

    made = sync()
    api.patch(at(team, sources[0]), {"data": {"a": "theirs"}, "metadata": {"labels": {"theirs": "yes"}}})
    verified = sync("--verify", "content")
    api.patch(sources[0], {"data": {"a": "new"}})
    changed, again = sync(), sync()

    assert [made.summary, verified.summary["configured"], changed.summary["configured"]] == [{"created": 4}, 1, 2]
    assert (again.exit_code, again.summary) == (0, {"unchanged": 4})
    for source in sources:
        assert [content(api.get(at(each, source))) for each in (team, other)] == [content(api.get(source))] * 2
    copy = api.get(at(team, sources[0]))
    assert copy and copy["metadata"]["labels"]["theirs"] == "yes"


@pytest.mark.usefixtures("no_room")
@pytest.mark.parametrize(("value", "later"), [("changed meanwhile", "created"), (None, "refused")])
def test_a_source_that_changes_before_it_is_read_again_is_left_to_the_next_run(
    api: Api, sync: Run, monkeypatch: pytest.MonkeyPatch, home: str, team: str, value: str | None, later: str
) -> None:
    source = api.create(configmap(home))
    api.create(rule("large", home, team, keys={"include": ["a"]}))
    read = _Writer._read

    def change_first(self: _Writer, key: ObjectKey) -> bytes:
        api.patch(source, {"data": {"a": value}})
        return read(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(_Writer, "_read", change_first)
        ran = sync()
        kept = api.get(at(team, source))
    again = sync()

    assert (ran.exit_code, ran.summary, kept) == (0, {"skipped": 1}, None)
    assert "changed meanwhile: the next run reads it again" in str(ran.results)
    assert again.summary == {later: 1}
    assert (api.get(at(team, source)) or {}).get("data") == ({"a": value} if value else None)
