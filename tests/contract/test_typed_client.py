"""An independent client: the kubernetes package reads and writes the same objects."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, config

from tests.contract.conftest import Place


@pytest.fixture
def core(place: Place) -> Iterator[Any]:
    """CoreV1Api as the admin."""
    connection = config.new_client_from_config(config_file=str(place.api.kubeconfig))
    yield client.CoreV1Api(connection)
    connection.close()


def test_secrets(place: Place, core: Any) -> None:
    body = client.V1Secret(metadata=client.V1ObjectMeta(name="a"), string_data={"a": "canary-1"})

    made = core.create_namespaced_secret(place.namespace, body, field_manager="witness")
    made.data = {"a": "Y2FuYXJ5LTI="}
    put = core.replace_namespaced_secret("a", place.namespace, made)

    assert made.type == "Opaque"
    assert made.metadata.managed_fields[0].manager == "witness"
    assert put.metadata.uid == made.metadata.uid
    assert [item.metadata.name for item in core.list_namespaced_secret(place.namespace).items] == ["a"]
    core.delete_namespaced_secret("a", place.namespace)
    assert core.list_namespaced_secret(place.namespace).items == []


def test_errors(place: Place, core: Any) -> None:
    with pytest.raises(client.ApiException) as missing:
        core.read_namespaced_config_map("none", place.namespace)
    with pytest.raises(client.ApiException) as invalid:
        core.create_namespaced_config_map(
            place.namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a"), data={"b/d": "x"})
        )

    assert (missing.value.status, missing.value.reason) == (404, "Not Found")
    assert (invalid.value.status, invalid.value.reason) == (422, "Unprocessable Entity")


def test_namespaces_and_pages(place: Place, core: Any) -> None:
    for number in range(5):
        metadata = client.V1ObjectMeta(name=f"c{number}", labels={"set": place.namespace})
        core.create_namespaced_config_map(place.namespace, client.V1ConfigMap(metadata=metadata))

    selection = {"label_selector": f"set={place.namespace}", "limit": 3}
    first = core.list_config_map_for_all_namespaces(**selection)
    rest = core.list_config_map_for_all_namespaces(**selection, _continue=first.metadata._continue)

    assert core.read_namespace(place.namespace).status.phase == "Active"
    assert [item.metadata.name for item in first.items + rest.items] == [f"c{number}" for number in range(5)]
