"""The comparison of a soak's cluster with a fresh one."""

from pathlib import Path

import pytest

from soak.cluster import kustomizations
from soak.fresh import JOBS, differences, run
from tests.apis import Object, real_api
from tests.control_plane import control_plane, missing
from tests.farm import FARMED, farmed, pod
from tests.node.kubectl import Kubectl
from tests.worlds import at, configmap, namespace_object, rule, secret

pytestmark = pytest.mark.cluster


def test_each_difference_from_a_fresh_cluster_is_reported(tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    with control_plane() as plane:
        api = real_api(plane, tmp_path)
        manifests = kustomizations(tmp_path)
        kubectl = Kubectl(plane.kubeconfig)
        for each in manifests:
            kubectl(f"apply -k {each}")
        farm = farmed(api, "farm", FARMED)
        api.create(pod(farm, "web"))
        sources = [configmap("source", data={"a": "1"}), secret("source")]
        for obj in (*map(namespace_object, ("source", "team-1", "team-2")), *sources):
            api.put(obj)
        for name, kind in (("settings", "configmap"), ("logins", "secret")):
            api.put(rule(name, "source", "team-*", ruleType=kind))
        assert [run(api, job) for job in JOBS] == ["", "", ""]
        assert differences(api, manifests, _new(tmp_path / "same")) == []

        api.patch(at("team-1", sources[0]), {"data": {"a": "2"}})
        api.patch(at("team-1", sources[1]), {"metadata": {"annotations": {"kubechores.dev/source": "elsewhere/other"}}})
        api.delete(at("team-2", sources[1]))
        (farm_pod,) = api.items("kubechores.dev/v1", "FarmPod", farm)
        api.delete(farm_pod)
        api.put(_named("other", api.read(at("team-2", sources[0]))))

        assert differences(api, manifests, _new(tmp_path / "different")) == [
            "configmap/settings in team-1 is not as in a fresh cluster: data",
            "configmap/other in team-2 would not exist in a fresh cluster",
            f"farmpod/farm-web in {farm} is missing, and exists in a fresh cluster",
            "secret/login in team-1 is not as in a fresh cluster: kubechores.dev/source",
            "secret/login in team-2 is missing, and exists in a fresh cluster",
        ]


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _named(name: str, copy: Object) -> Object:
    metadata = {key: value for key, value in copy["metadata"].items() if key in ("namespace", "labels", "annotations")}
    return {**copy, "metadata": {**metadata, "name": name}}
