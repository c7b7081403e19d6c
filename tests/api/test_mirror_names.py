"""The different names of one registry, and the name by which nodes find its mirror, on both API servers."""

from typing import Any

import pytest

from tests.api.conftest import Run
from tests.api.test_mirror_audit import codes
from tests.apis import Api
from tests.mirrors import Mirrors, credentials


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("r9.example.com", "r9.example.com:443"),
        ("https://r9.example.com:443", "r9.example.com"),
        ("docker.io", "registry-1.docker.io:443"),
        ("docker.io", "index.docker.io:443"),
    ],
)
def test_a_host_with_port_443_is_the_same_registry(audit: Run, mirrors: Mirrors, one: str, other: str) -> None:
    mirrors.healthy("first", one)
    mirrors.create("second", other)

    (found,) = audit().results

    assert found["code"] == "duplicate-upstream"


@pytest.mark.parametrize("annotated", ["r9.example.com", "r9.example.com:443"])
def test_credentials_are_valid_with_and_without_port_443(
    api: Api, audit: Run, mirrors: Mirrors, annotated: str
) -> None:
    login = mirrors.name("login")
    api.create(credentials(login, annotated))
    upstream = "r9.example.com" if annotated.endswith(":443") else "r9.example.com:443"
    mirrors.healthy("r9", upstream, credentialsSecret=login, allowUnauthenticatedReaders=True)

    assert codes(audit()) == []


@pytest.mark.parametrize(
    ("spec", "host"),
    [
        # containerd searches for the host in the names of images, with its port.
        ({"upstream": "r9.example.com"}, "r9.example.com"),
        ({"upstream": "r9.example.com:443"}, "r9.example.com:443"),
        ({"upstream": "r9.example.com:443", "registryHost": "r9.example.com"}, "r9.example.com"),
        ({"upstream": "r9.example.com", "registryHost": "r9.example.com:443"}, "r9.example.com:443"),
        # It reads images of index.docker.io as those of docker.io.
        ({"upstream": "r9.example.com", "registryHost": "index.docker.io"}, "docker.io"),
        ({"upstream": "docker.io:443"}, "docker.io"),
    ],
)
def test_nodes_get_the_host_in_the_names_of_images(mirrors: Mirrors, spec: dict[str, Any], host: str) -> None:
    mirror = mirrors.of(mirrors.create("r9", **spec))

    args = mirror.daemon_set.spec.template.spec.containers[0].args
    assert f"--host={host}" in args
    assert not any(arg.startswith("--upstream=") and arg.endswith(":443") for arg in args)
