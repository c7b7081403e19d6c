"""The types of Secrets that sync-copies copies, on both API servers."""

import json

from jobs.kit.values import stamps
from tests.api.conftest import Run, with_rule
from tests.apis import Api, Object
from tests.canary import canary
from tests.worlds import at, configmap, content, encoded, rule, secret

CORE: dict[str, tuple[str, ...]] = {
    "Opaque": ("key",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/basic-auth": ("username", "password"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
NEVER_COPIED = {
    "kubernetes.io/service-account-token": "service-account tokens are never copied",
    "bootstrap.kubernetes.io/token": "bootstrap tokens are never copied",
    "bootstrap.kubernetes.io/other": "bootstrap tokens are never copied",
    "helm.sh/release.v1": "Helm releases are never copied",
    "helm.sh/release.v2": "Helm releases are never copied",
}


def of_type(namespace: str, name: str, kind: str, *keys: str) -> Object:
    """Return a Secret of this type that the rules select."""
    value = json.dumps({"auths": {"registry.example.com": {"auth": canary()}}}) if "docker" in kind else canary()
    created = secret(namespace, name, type=kind, data={key: encoded(value) for key in keys or ("key",)})
    annotations = {"kubernetes.io/service-account.name": "reader"} if "service-account" in kind else {}
    return {**created, "metadata": {**created["metadata"], "annotations": annotations}}


def test_a_secret_is_copied_with_its_type(api: Api, sync: Run, home: str, team: str) -> None:
    kinds = [*CORE, "example.com/own"]
    sources = [
        api.create(of_type(home, f"login-{number}", kind, *CORE.get(kind, ()))) for number, kind in enumerate(kinds)
    ]
    api.create(rule("logins", home, team, ruleType="secret"))

    assert sync().summary == {"created": len(kinds)}
    assert [content(api.get(at(team, each))) for each in sources] == [content(each) for each in sources]
    assert sync("--verify", "content").summary == {"unchanged": len(kinds)}


def test_a_secret_on_which_the_cluster_or_helm_acts_is_never_copied(api: Api, sync: Run, home: str, team: str) -> None:
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": home}})
    sources = {f"login-{number}": kind for number, kind in enumerate(NEVER_COPIED)}
    for name, kind in sources.items():
        api.create(of_type(home, name, kind))
    copied = with_rule(api, secret(home, "other"))

    ran = sync("-v")

    assert (ran.exit_code, ran.summary) == (0, {"created": 1, "skipped": len(sources)})
    reasons = {each["object"]["name"]: each["reason"] for each in ran.results if each["code"] == "skipped"}
    assert reasons == {name: NEVER_COPIED[kind] for name, kind in sources.items()}
    assert [name for name in sources if api.get(secret(team, name))] == []
    assert api.get(at(team, copied))


def test_a_source_that_is_recreated_with_such_a_type_loses_its_copies(
    api: Api, sync: Run, home: str, team: str
) -> None:
    kinds = {"token": "bootstrap.kubernetes.io/token", "release": "helm.sh/release.v2"}
    for name in kinds:
        api.create(secret(home, name))
    api.create(rule("logins", home, team, ruleType="secret"))
    assert sync().summary == {"created": len(kinds)}
    for name, kind in kinds.items():
        api.delete(secret(home, name))
        api.create(of_type(home, name, kind))

    assert sync().summary == {"deleted": len(kinds)}
    assert [name for name in kinds if api.get(secret(team, name))] == []


def test_a_copy_of_a_bootstrap_token_that_an_older_version_made_is_deleted(api: Api, sync: Run) -> None:
    home, team = api.namespace("home"), api.namespace("team")
    token = api.create(of_type(home, "token", "bootstrap.kubernetes.io/token"))
    with_rule(api, secret(home))
    stamp = stamps.stamp("sync-copies", "kube-chores", "logins", f"{home}/token", "v1:old")
    metadata = {"labels": dict(stamp.labels), "annotations": dict(stamp.annotations)}
    copy = of_type(team, "token", "bootstrap.kubernetes.io/token")
    api.create({**copy, "metadata": {**copy["metadata"], **metadata}})

    assert sync().summary == {"created": 1, "deleted": 1}
    assert api.get(at(team, token)) is None


def test_a_helm_release_in_a_configmap_is_never_copied(api: Api, sync: Run, home: str, team: str) -> None:
    release = with_rule(api, configmap(home, "sh.helm.release.v1.shop.v1"))

    assert sync("-v").summary == {"nothing-selected": 1, "skipped": 1}
    assert api.get(at(team, release)) is None


def test_a_copy_never_has_the_label_by_which_helm_finds_releases(api: Api, sync: Run, home: str, team: str) -> None:
    source = api.create(configmap(home, labels={"copyrator": "true", "owner": "helm", "app": "shop"}))
    api.create(rule("copied", home, team, metadata={"copyLabels": ["owner", "app"]}))
    api.create(rule("set", home, team, metadata={"labels": {"owner": "helm"}}))

    ran = sync()

    assert (ran.exit_code, ran.summary) == (2, {"created": 1, "invalid": 1})
    assert "spec.metadata.labels[owner]: helm is reserved" in ran.stdout
    copy = api.get(at(team, source))
    assert copy and copy["metadata"]["labels"]["app"] == "shop"
    assert "owner" not in copy["metadata"]["labels"]
