"""The inventory of clusters: Secrets and ClusterProfiles with any content that their writers may think of."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.kit.api import curl
from kubesandbox import Sandbox
from tests import embedded
from tests.api.conftest import Ran, Run, runs
from tests.apis import Api, Object, sandbox_api, wait_for
from tests.canary import canary
from tests.hostile_clusters import hostile_cluster, kubeconfig, measured
from tests.worlds import at, configmap, content, encoded, namespace_object, rule, secret

EXTENSION = "client.authentication.k8s.io/exec"
LABELLED = {"kubechores.dev/cluster": "true"}


def _strings(*names: str) -> Object:
    return {name: {"type": "string"} for name in names}


def _list_of(item: Object) -> Object:
    return {"type": "array", "items": item}


def _object(properties: Object, *required: str) -> Object:
    return {"type": "object", "properties": properties, "required": list(required)}


# The fields that matter here, as https://github.com/kubernetes-sigs/cluster-inventory-api publishes them.
_FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_CLUSTER = {
    **_strings("server", "tls-server-name", "certificate-authority", "proxy-url"),
    "certificate-authority-data": {"type": "string", "format": "byte"},
    "insecure-skip-tls-verify": {"type": "boolean"},
    "disable-compression": {"type": "boolean"},
    "extensions": _list_of(_object({**_strings("name"), "extension": _FREE}, "name", "extension")),
}
_PROVIDERS = _list_of(_object({**_strings("name"), "cluster": _object(_CLUSTER, "server")}, "name"))
_PROFILE = _object(
    {
        "spec": _object({**_strings("displayName"), "clusterManager": _object(_strings("name"), "name")}),
        "status": _object({"accessProviders": _PROVIDERS, "credentialProviders": _PROVIDERS}),
    },
    "spec",
)
CRD: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "clusterprofiles.multicluster.x-k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/issues/4322"},
    },
    "spec": {
        "group": "multicluster.x-k8s.io",
        "scope": "Namespaced",
        "names": {
            "kind": "ClusterProfile",
            "listKind": "ClusterProfileList",
            "plural": "clusterprofiles",
            "singular": "clusterprofile",
        },
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": _PROFILE},
            }
        ],
    },
}


@dataclass
class There:
    """A cluster that gets copies, and a run of the hub for it."""

    hub: Api
    api: Api
    authority: bytes
    source: Object
    push: Run

    @property
    def token(self) -> str:
        """A token of the account that the hub uses."""
        return self.api.service_account_token("kube-chores", "sync-copies-hub")

    @property
    def cluster(self) -> Object:
        """The cluster as in a kubeconfig."""
        return {"server": self.api.url, "certificate-authority-data": encoded(self.authority.decode())}

    @property
    def kubeconfig(self) -> str:
        """A kubeconfig of it."""
        return kubeconfig(self.api.url, self.authority, self.token)

    def has_copy(self) -> bool:
        """Whether the copy is as its source."""
        return content(self.api.get(at("team-a", self.source))) == content(self.source)

    def name(self, name: str) -> str:
        """A name that no other test has."""
        return f"{name}-{self.hub.token}"


@pytest.fixture
def there(api: Api, installed: Path, home: str, tmp_path: Path) -> Iterator[There]:
    folder = tmp_path / "there"
    folder.mkdir()
    with Sandbox(of=embedded.installed(), tls=True) as sandbox:
        spoke = sandbox_api(sandbox, folder)
        spoke.create(namespace_object("team-a"))
        source = api.create(configmap(home))
        made = rule("settings", home, "team-a")
        made["spec"]["targets"]["clusters"] = {}
        api.create(made)
        run = runs("sync-copies", api.service_account_kubeconfig("kube-chores", "sync-copies-clusters"))

        def push(*arguments: str, **given: Any) -> Ran:
            return run("-n", "kube-chores", "--clusters", f"*-{api.token}", *arguments, **given)

        yield There(api, spoke, sandbox.authority, source, push)


@pytest.fixture
def profiles(there: There) -> Callable[..., Object]:
    """Install the CRD; return what creates a ClusterProfile with a status."""
    wait_for(lambda: there.hub.get(CRD) is None, "an earlier test's CRD to be deleted")
    there.hub.create(CRD)

    def create(name: str, status: Object | None, **labels: str) -> Object:
        made = there.hub.create(
            {
                "apiVersion": "multicluster.x-k8s.io/v1alpha1",
                "kind": "ClusterProfile",
                "metadata": {"name": there.name(name), "namespace": "kube-chores", "labels": labels},
                "spec": {"clusterManager": {"name": "tests"}},
            }
        )
        return there.hub.patch_status(made, status) if status is not None else made

    return create


def provider(there: There, name: str, arguments: Any, **cluster: Any) -> Object:
    """An access provider with these arguments of its plugin."""
    extensions = [{"name": EXTENSION, "extension": arguments}]
    return {"name": name, "cluster": {**there.cluster, "extensions": extensions, **cluster}}


def stored(there: There, name: str, labels: Mapping[str, str] = {}, **data: str) -> str:
    """Create a Secret in the namespace of the rules; return its name."""
    made = {key.replace("_", "."): encoded(value) for key, value in data.items()}
    there.hub.create(secret("kube-chores", there.name(name), labels=labels, data=made))
    return there.name(name)


def with_token(there: There, name: str = "one") -> str:
    """Create a Secret with a token, as the plugin secretreader reads it."""
    body = secret("kube-chores", there.name(name), labels={}, data={})
    there.hub.create(body)
    there.hub.patch(body, {"data": {"token": encoded(there.token)}})
    return there.name(name)


# ClusterProfiles that work


def test_the_token_of_a_secret_connects_to_a_cluster_profile(there: There, profiles: Callable[..., Object]) -> None:
    arguments = {"clusterName": with_token(there)}
    profiles("one", {"accessProviders": [provider(there, "secretreader", arguments)]})

    ran = there.push()

    assert (ran.exit_code, ran.summary, there.has_copy()) == (0, {"created": 1}, True), ran


@pytest.mark.parametrize("arguments", [{}, {"key": "value", "namespace": "kube-chores"}, {"key": "config"}])
@pytest.mark.parametrize("field", ["accessProviders", "credentialProviders"])
def test_the_user_of_a_kubeconfig_connects_to_a_cluster_profile(
    there: There, profiles: Callable[..., Object], arguments: Object, field: str
) -> None:
    key = arguments.get("key", "value")
    named = {"name": stored(there, "one", {}, **{key: there.kubeconfig}), **arguments}
    profiles("one", {field: [{"name": "other"}, provider(there, "kubeconfig-secretreader", named)]})

    ran = there.push()

    assert (ran.exit_code, ran.summary, there.has_copy()) == (0, {"created": 1}, True), ran


def test_a_rule_selects_a_cluster_profile_by_its_labels(there: There, profiles: Callable[..., Object]) -> None:
    profiles("one", {"accessProviders": [provider(there, "secretreader", {"clusterName": with_token(there)})]}, env="a")
    selecting = {"spec": {"targets": {"clusters": {"selector": {"matchLabels": {"env": "b"}}}}}}
    there.hub.patch(rule("settings", "", ""), selecting)

    assert there.push().summary == {"nothing-selected": 1}
    selecting["spec"]["targets"]["clusters"]["selector"]["matchLabels"]["env"] = "a"
    there.hub.patch(rule("settings", "", ""), selecting)
    assert there.push().summary == {"created": 1}


# ClusterProfiles that do not


def expect_refused(there: There, ran: Ran, name: str, why: str) -> None:
    """Check that this cluster is refused, by its name, and that another one gets its copy."""
    found = [each for each in ran.results if each["object"] == {"kind": "Cluster", "name": name}]
    assert ([each["code"] for each in found], why in found[0]["reason"] if found else "") == (["invalid"], True), ran
    assert len(found[0]["reason"]) < 2000
    assert (ran.exit_code, there.has_copy()) == (2, True)


STATUSES: Mapping[str, tuple[Callable[[There], Object | None], str]] = {
    "no status": (lambda _there: None, "has neither secretreader nor kubeconfig-secretreader"),
    "no providers": (lambda _there: {}, "has neither secretreader nor kubeconfig-secretreader"),
    "other providers": (
        lambda t: {"accessProviders": [provider(t, "gke", {"clusterName": "x"})]},
        "has neither secretreader nor kubeconfig-secretreader",
    ),
    "no cluster": (
        lambda _there: {"accessProviders": [{"name": "secretreader"}]},
        "clusterName must be the name of a Secret",
    ),
    "no arguments": (
        lambda t: {"accessProviders": [{"name": "secretreader", "cluster": t.cluster}]},
        "clusterName must be the name of a Secret",
    ),
    "arguments of another plugin": (
        lambda t: {"accessProviders": [provider(t, "secretreader", {"name": "x"})]},
        "clusterName must be the name of a Secret",
    ),
    "a name that is not text": (
        lambda t: {"accessProviders": [provider(t, "secretreader", {"clusterName": {"a": [1]}})]},
        "clusterName must be the name of a Secret",
    ),
    "a Secret that does not exist": (
        lambda t: {"accessProviders": [provider(t, "secretreader", {"clusterName": "missing"})]},
        "not found",
    ),
    "a Secret without the key": (
        lambda t: {"accessProviders": [provider(t, "secretreader", {"clusterName": stored(t, "x", other=canary())})]},
        "has no key token",
    ),
    "a Secret of another namespace": (
        lambda t: {
            "accessProviders": [provider(t, "kubeconfig-secretreader", {"name": "x", "namespace": "kube-system"})]
        },
        "namespace must be kube-chores",
    ),
    "a path in place of a name": (
        lambda t: {"accessProviders": [provider(t, "secretreader", {"clusterName": "../../kube-system/secrets/x"})]},
        "must be the name of a Secret",
    ),
    "a query in place of a name": (
        lambda t: {"accessProviders": [provider(t, "kubeconfig-secretreader", {"name": "?watch=true"})]},
        "must be the name of a Secret",
    ),
    "dots in place of a name": (
        lambda t: {"accessProviders": [provider(t, "kubeconfig-secretreader", {"name": ".."})]},
        "must be the name of a Secret",
    ),
    "a long name": (
        lambda t: {"accessProviders": [provider(t, "kubeconfig-secretreader", {"name": "<" * 200_000})]},
        "must be the name of a Secret",
    ),
    "a kubeconfig that is not one": (
        lambda t: {
            "accessProviders": [provider(t, "kubeconfig-secretreader", {"name": stored(t, "x", value=canary())})]
        },
        "is not one YAML document",
    ),
    "a kubeconfig of 900 KiB": (
        lambda t: {
            "accessProviders": [
                provider(t, "kubeconfig-secretreader", {"name": stored(t, "x", value=canary("[a, b],\n" * 115_000))})
            ]
        },
        "more than 64 KiB",
    ),
    "a plugin in the kubeconfig": (
        lambda t: {
            "accessProviders": [
                provider(
                    t,
                    "kubeconfig-secretreader",
                    {"name": stored(t, "x", value=yaml.safe_dump({"users": [{"user": {"exec": {canary(): "x"}}}]}))},
                )
            ]
        },
        "remove exec",
    ),
    "no verification": (
        lambda t: {
            "accessProviders": [
                provider(t, "secretreader", {"clusterName": with_token(t, "x")}, **{"insecure-skip-tls-verify": True})
            ]
        },
        "remove insecure-skip-tls-verify",
    ),
    "a proxy": (
        lambda t: {
            "accessProviders": [
                provider(t, "secretreader", {"clusterName": with_token(t, "x")}, **{"proxy-url": "http://10.0.0.1"})
            ]
        },
        "remove proxy-url",
    ),
    "a file": (
        lambda t: {
            "accessProviders": [
                provider(t, "secretreader", {"clusterName": with_token(t, "x")}, **{"certificate-authority": "/etc/x"})
            ]
        },
        "remove certificate-authority",
    ),
}


@pytest.mark.parametrize("name", STATUSES)
def test_another_cluster_profile_is_refused(there: There, profiles: Callable[..., Object], name: str) -> None:
    make, why = STATUSES[name]
    stored(there, "good", LABELLED, value=there.kubeconfig)
    profiles("one", make(there))
    there.hub.mark()

    ran = there.push()

    expect_refused(there, ran, there.name("one"), why)
    read = [each.path for each in there.hub.requests() if "/secrets/" in each.path]
    assert all(each.startswith("/api/v1/namespaces/kube-chores/secrets/") and ".." not in each for each in read), read


def test_the_provider_of_a_token_comes_before_that_of_a_kubeconfig(
    there: There, profiles: Callable[..., Object]
) -> None:
    second = provider(there, "kubeconfig-secretreader", {"name": "missing"})
    first = provider(there, "secretreader", {"clusterName": with_token(there)})
    profiles("one", {"accessProviders": [second, first]})

    assert there.push().summary == {"created": 1}


def test_a_token_of_the_hub_itself_is_not_sent_to_a_cluster(there: There, profiles: Callable[..., Object]) -> None:
    """Who writes a ClusterProfile chooses the server and the Secret: that of a ServiceAccount here is not for it."""
    token = canary()
    body = secret("kube-chores", there.name("x"), labels={}, data={})
    body["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "sync-copies"}
    there.hub.create({**body, "type": "kubernetes.io/service-account-token"})
    there.hub.patch(body, {"data": {"token": encoded(token)}})
    with hostile_cluster(lambda _asked: None) as hostile:
        cluster = {"server": hostile.url, "certificate-authority-data": encoded(hostile.authority.decode())}
        arguments = {"clusterName": there.name("x")}
        profiles("one", {"accessProviders": [provider(there, "secretreader", arguments, **cluster)]})

        ran = there.push()

    assert [each for each in hostile.asked if "authorization" in each.headers] == []
    assert ran.exit_code == 2, ran


def test_a_profile_and_a_secret_of_one_name_are_both_refused(there: There, profiles: Callable[..., Object]) -> None:
    stored(there, "one", LABELLED, value=there.kubeconfig)
    profiles("one", {"accessProviders": [provider(there, "secretreader", {"clusterName": with_token(there, "x")})]})

    ran = there.push()

    assert (ran.exit_code, ran.summary, there.has_copy()) == (2, {"invalid": 1}, False), ran
    assert "a Secret and a ClusterProfile have this name" in ran.results[0]["reason"]


def test_hundreds_of_strange_profiles_do_not_stop_a_good_one(there: There, profiles: Callable[..., Object]) -> None:
    stored(there, "good", LABELLED, value=there.kubeconfig)
    for number in range(200):
        profiles(f"p{number}", {"accessProviders": [{"name": ("secretreader", "x")[number % 2]}]})

    ran = there.push()

    assert (ran.exit_code, ran.summary, there.has_copy()) == (2, {"created": 1, "invalid": 200}, True)


# Secrets


def changed(config: str, **fields: Any) -> str:
    """Return a kubeconfig with other fields of the cluster, the user or the whole."""
    made = yaml.safe_load(config)
    made["clusters"][0]["cluster"] |= fields.pop("cluster", {})
    made["users"][0]["user"] |= fields.pop("user", {})
    return yaml.safe_dump({**made, **fields})


BOMB = "a: &a [x, x, x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\n# "
KUBECONFIGS: Mapping[str, tuple[Callable[[str], str], str]] = {
    "files": (
        lambda good: changed(good, user={"tokenFile": canary()}, cluster={"certificate-authority": canary()}),
        "remove",
    ),
    "a plugin": (lambda good: changed(good, user={"exec": {"command": canary()}}), "user: remove exec"),
    "a provider": (lambda good: changed(good, user={"auth-provider": {"name": canary()}}), "remove auth-provider"),
    "a proxy": (lambda good: changed(good, cluster={"proxy-url": canary()}), "cluster: remove proxy-url"),
    "impersonation": (
        lambda good: changed(good, user={"as": canary(), "as-groups": ["system:masters"], "as-uid": canary()}),
        "user: remove as, as-groups, as-uid",
    ),
    "several contexts": (
        lambda good: changed(good, contexts=[yaml.safe_load(good)["contexts"][0] for _ in range(2)]),
        "contexts: must have exactly one entry",
    ),
    "aliases": (lambda _good: BOMB + canary(), "aliases are not allowed"),
    "a tag": (lambda _good: f"a: !!python/object/apply:os.system [{canary()}]", "unknown tag"),
    "60 KiB of brackets": (lambda _good: f"# {canary()}\n" + "[" * 60_000, "nested too deeply"),
    "800 KiB": (lambda good: good + "# " + "x" * 800_000, "has more than 64 KiB"),
    "two documents": (lambda good: f"{good}\n---\n{good}", "is not one YAML document"),
    "nothing but text": (lambda _good: canary(), "is not one YAML document"),
    "a control character": (lambda good: f"{good}\x00", "is not valid YAML"),
    "a name for terminals": (lambda good: changed(good, **{"\x1b]52;c;x\x07": canary()}), "it: remove"),
    "a long name of a field": (lambda good: changed(good, **{"x" * 50_000: canary()}), "it: remove"),
    "many fields": (lambda good: changed(good, **{f"x{n}": 1 for n in range(5000)}), "it: remove"),
    "no host": (lambda good: changed(good, cluster={"server": "https://:443"}), "must be an https URL"),
    "a socket": (lambda good: changed(good, cluster={"server": "unix:///run/docker.sock"}), "must be an https URL"),
    "a port that is not one": (lambda good: changed(good, cluster={"server": "https://a:99999"}), "must be an https"),
    "a host of another alphabet": (lambda good: changed(good, cluster={"server": "https://ä"}), "must be an https"),
    "a fragment": (lambda good: changed(good, cluster={"server": "https://a/#"}), "must be an https"),
    "a question": (lambda good: changed(good, cluster={"server": "https://a/?"}), "must be an https"),
    "an escape": (lambda good: changed(good, cluster={"server": "https://a\\@b"}), "must be an https"),
    "a token of two lines": (lambda good: changed(good, user={"token": f"{canary()}\nHost: x"}), "control character"),
    "numbers": (lambda good: changed(good, user={"token": 3}, cluster={"server": 4}), "must be an https URL"),
    "lists": (lambda good: changed(good, clusters={"a": canary()}, users=canary(), contexts=3), "exactly one entry"),
    "null": (
        lambda good: changed(good, clusters=None, users=[None], contexts=[[]], extensions=[canary()]),
        "exactly one entry",
    ),
}


@pytest.mark.parametrize("name", KUBECONFIGS)
def test_a_strange_kubeconfig_is_refused_and_no_value_is_shown(there: There, name: str) -> None:
    make, why = KUBECONFIGS[name]
    stored(there, "good", LABELLED, value=there.kubeconfig)
    stored(there, "one", LABELLED, value=make(there.kubeconfig))

    expect_refused(there, there.push(), there.name("one"), why)


@pytest.mark.parametrize("data", [{}, {"other": "x"}, {"value": ""}])
def test_a_secret_without_a_kubeconfig_is_refused(there: There, data: Mapping[str, str]) -> None:
    stored(there, "good", LABELLED, value=there.kubeconfig)
    body = secret("kube-chores", there.name("one"), labels=LABELLED, data={})
    there.hub.create(body)
    there.hub.patch(body, {"data": {key: encoded(value) for key, value in data.items()}})

    expect_refused(there, there.push(), there.name("one"), "has neither key value nor kubeconfig")


SERVERS: Mapping[str, Object] = {
    "the metadata of a cloud": {"server": "https://169.254.169.254"},
    "this machine by name": {"server": "https://localhost:1"},
    "this machine": {"server": "https://[::1]:1"},
    "no address": {"server": "https://0.0.0.0:1"},
    "a broadcast": {"server": "https://255.255.255.255:1"},
    "a name without an address": {"server": "https://none.invalid"},
    "an address as a number": {"server": "https://2130706433:1"},
    "a path": {"server": "https://127.0.0.1:1/../../x"},
    "another authority": {"certificate-authority-data": encoded("-----BEGIN CERTIFICATE-----\nx\n")},
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_strange_server_is_not_reached_and_stops_no_other(
    there: There, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(curl, "CONNECT_SECONDS", 2)
    stored(there, "good", LABELLED, value=there.kubeconfig)
    stored(there, "one", LABELLED, value=changed(there.kubeconfig, cluster=SERVERS[name]))

    ran = there.push()

    found = [each["code"] for each in ran.results if each["object"] == {"kind": "Cluster", "name": there.name("one")}]
    assert (found, ran.exit_code, there.has_copy()) == (["unreachable"], 1, True), ran


CERTIFICATES: Mapping[str, tuple[str, str]] = {
    "not PEM": (canary(), canary()),
    "empty PEM": (f"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n{canary()}", canary()),
}


@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_client_certificate_that_is_not_one_stops_no_other(there: There, name: str) -> None:
    certificate, key = map(encoded, CERTIFICATES[name])
    stored(there, "good", LABELLED, value=there.kubeconfig)
    config = yaml.safe_load(there.kubeconfig)
    config["users"][0]["user"] = {"client-certificate-data": certificate, "client-key-data": key}
    stored(there, "one", LABELLED, value=yaml.safe_dump(config))

    ran = there.push()

    assert (ran.exit_code, ran.summary["created"], there.has_copy()) == (1, 1, True), ran


def encrypted_key() -> tuple[bytes, bytes]:
    """Return a certificate, and its key with a passphrase, in PEM."""
    from datetime import datetime, timedelta, timezone

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "one")])
    now = datetime.now(timezone.utc)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    passphrase = BestAvailableEncryption(canary().encode())
    return (
        made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, passphrase),
    )


def test_a_key_with_a_passphrase_asks_nobody_for_it(there: There) -> None:
    """Otherwise OpenSSL reads from the terminal or from standard input, and the run never ends."""
    certificate, key = encrypted_key()
    stored(there, "good", LABELLED, value=there.kubeconfig)
    config = yaml.safe_load(there.kubeconfig)
    user = {"client-certificate-data": encoded(certificate.decode()), "client-key-data": encoded(key.decode())}
    config["users"][0]["user"] = user
    stored(there, "one", LABELLED, value=yaml.safe_dump(config))
    account = there.hub.service_account_kubeconfig("kube-chores", "sync-copies-clusters")
    command = [sys.executable, "-m", "jobs", "sync-copies", "-n", "kube-chores", "--clusters", f"*-{there.hub.token}"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,  # stays open
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "KUBECONFIG": str(account)},
        start_new_session=True,  # without a terminal
    )
    try:
        code = process.wait(60)
    finally:
        process.kill()
        process.communicate()

    assert (code, there.has_copy()) == (1, True)


def test_the_proxy_of_the_environment_is_not_for_clusters(there: There) -> None:
    """A proxy is a setting of the operator's connection to the hub; credentials of clusters are not sent through it."""
    stored(there, "one", LABELLED, value=there.kubeconfig)

    ran = there.push(env={"HTTPS_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1"})

    assert there.has_copy() or "127.0.0.1:1" in ran.stderr


def test_large_secrets_do_not_take_the_memory_of_the_run(there: There, tmp_path: Path) -> None:
    for number in range(120):
        stored(there, f"large-{number}", LABELLED, value=canary("x" * 1_000_000))
    stored(there, "good", LABELLED, value=there.kubeconfig)
    account = there.hub.service_account_kubeconfig("kube-chores", "sync-copies-clusters")

    ran = measured(["-n", "kube-chores", "--clusters", f"*-{there.hub.token}"], account, tmp_path)

    print(f"{ran.peak >> 20} MiB")  # noqa: T201
    assert (ran.exit_code, there.has_copy()) == (2, True)
    assert ran.peak >> 20 < 150
