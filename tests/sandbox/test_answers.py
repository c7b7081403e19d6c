"""The answers that count as those of the API: the requested object, pages of limited size, a Status."""

import json
from collections.abc import Iterator

import pytest

from jobs.kit.api import cluster as kit
from jobs.kit.api.cluster import Cluster
from jobs.kit.api.endpoint import Endpoint
from jobs.kit.api.responses import Request, Response, error_of
from jobs.kit.api.transport import Transport
from jobs.kit.data.objects import WholeObject
from jobs.kit.values.errors import ApiError
from jobs.kit.values.reads import InvalidObject
from jobs.kit.values.resources import CONFIGMAPS
from kubesandbox import Fault, Sandbox

PATH = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def cluster(sandbox: Sandbox) -> Iterator[Cluster]:
    transport = Transport(Endpoint(sandbox.url, lambda: f"Bearer {sandbox.admin_token}"), "kube-chores/test")
    yield Cluster(transport, "kube-chores")
    transport.close()


def read(cluster: Cluster, name: str = "a", *, full: bool = True) -> ApiError | None:
    (answer,) = cluster.read([(CONFIGMAPS, "default", name, full)])
    return error_of(answer)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({}, None),
        ({"metadata": {"name": "b", "namespace": "default"}}, "is not the object of that name"),
        ({"metadata": {"name": "a", "namespace": "other"}}, "is not the object of that name"),
        ({"kind": "Secret"}, "is not ConfigMap of v1, but 'Secret' of 'v1'"),
        ({"metadata": []}, "is not ConfigMap: "),
    ],
)
def test_an_object_is_the_one_that_was_requested(
    sandbox: Sandbox, cluster: Cluster, changed: dict[str, object], problem: str | None
) -> None:
    right = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}}
    sandbox.inject(Fault("GET", kind="answer", status=200, body=json.dumps({**right, **changed}).encode()))

    error = read(cluster)

    assert (error is None) == (problem is None)
    assert problem is None or (error and error.status == 0 and problem in error.message)


def test_only_a_404_of_the_api_server_means_that_an_object_does_not_exist(sandbox: Sandbox, cluster: Cluster) -> None:
    absent = read(cluster)
    sandbox.inject(Fault("GET", kind="answer", status=404, body=b"404 page not found"))
    unknown = read(cluster)

    assert (absent and absent.status, unknown and unknown.status) == (404, 0)


@pytest.mark.parametrize(
    ("error", "check"),
    [
        ("SSL certificate problem: self-signed certificate", "; check that the certificate authority of this client"),
        ("SSL certificate problem: certificate has expired", "; check the clock of this machine, then the certificate"),
        ("OpenSSL SSL_connect: Connection reset by peer", ""),
    ],
)
def test_an_error_of_a_certificate_during_a_run_names_what_to_check(error: str, check: str) -> None:
    """The server may get another certificate, and end the connection, after it has answered."""
    found = error_of(Response(Request("GET", PATH), 0, error=error))

    assert found
    assert found.message[: len(error + check)] == error + check
    assert bool(check) == (";" in found.message)


def test_an_error_of_credentials_names_what_to_check(sandbox: Sandbox, cluster: Cluster) -> None:
    sandbox.inject(Fault("GET", status=401))

    error = read(cluster)

    assert error and error.message.endswith(
        "check that the token or certificate is of this cluster and has not expired"
    )


@pytest.fixture
def ten(sandbox: Sandbox, cluster: Cluster) -> list[str]:
    """Create ten ConfigMaps of 100 kB; return their names."""
    names = [f"a-{number}" for number in range(10)]
    for name in names:
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "x" * 100_000}}
        request = Request("POST", PATH, json.dumps(made).encode(), max_bytes=1 << 20)
        assert cluster.transport.send(request).status == 201
    return names


def listed(cluster: Cluster) -> list[object]:
    objects = cluster.objects(CONFIGMAPS, WholeObject, lambda each: each.metadata.name, namespace="default")
    return [each for each in objects if each != "kube-root-ca.crt"]


def test_a_page_that_is_too_long_is_requested_again_with_half_of_what_fits(
    sandbox: Sandbox, cluster: Cluster, ten: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kit, "PAGE_SIZE", 8)
    monkeypatch.setattr(kit, "PAGE_BYTES", 350_000)

    assert sorted(map(str, listed(cluster))) == ten
    limits = [each.query["limit"] for each in sandbox.requests if "limit" in each.query]
    assert limits == ["8", *["2"] * 6]


def test_an_object_beyond_the_size_limit_fails_the_list(
    cluster: Cluster, ten: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kit, "PAGE_BYTES", 50_000)
    monkeypatch.setattr(kit, "OBJECT_BYTES", 50_000)

    with pytest.raises(ApiError, match="more than 48 KiB"):
        listed(cluster)
    assert ten


def test_an_invalid_object_is_named_and_keeps_nothing_in_memory(sandbox: Sandbox, cluster: Cluster) -> None:
    right = {"metadata": {"name": "a", "namespace": "default"}}
    head = {"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "1"}}
    body = {**head, "items": [right, {**right, "data": 3}, None]}
    sandbox.inject(Fault("GET", kind="answer", status=200, body=json.dumps(body).encode()))

    good, bad, nothing = listed(cluster)

    assert good == "a"
    assert isinstance(bad, InvalidObject) and isinstance(nothing, InvalidObject)
    assert (bad.key.name, nothing.key.name) == ("a", "(number 3 of a page)")
    assert (bad.error.__traceback__, bad.error.__context__) == (None, None)
