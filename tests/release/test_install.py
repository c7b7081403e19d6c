"""From a folder without this repository, users install what `make release` pushed, run jobs, and uninstall it."""

import re

import pytest

from tests.apis import Api, wait_for
from tests.control_plane import ROOT
from tests.node.conftest import Figure
from tests.policies import wait_until_policies_act
from tests.release.published import Release, User, build
from tests.worlds import at, configmap, rule

pytestmark = pytest.mark.release
(COMPONENTS,) = re.findall(r"```yaml\n(components:\n  - https://.*?)```", (ROOT / "docs/install.md").read_text(), re.S)


def run_two_jobs(user: User, api: Api) -> None:
    """Run sync-copies, which must write a copy, and roll-workloads, with the image of the release."""
    home, team = api.namespace("home"), api.namespace("team")
    source = api.create(configmap(home))
    api.create(rule("of-the-release", home, team))
    for job in ("sync-copies", "roll-workloads"):
        user(f"kubectl create job try-{job} --from=cronjob/{job} -n kube-chores")
        user(f"kubectl wait --for=condition=complete job/try-{job} -n kube-chores --timeout=120s")
        (pod,) = api.items("v1", "Pod", "kube-chores", labelSelector=f"batch.kubernetes.io/job-name=try-{job}")
        (status,) = pod["status"]["containerStatuses"]
        assert pod["spec"]["nodeName"] == "node"
        assert pod["spec"]["containers"][0]["image"] == status["imageID"] == user.release.image
    assert api.read(at(team, source))["data"] == source["data"]


def remove_copies(api: Api, before: set[str], user: User) -> None:
    """Delete what the test created, so that the rest is what the uninstall left, and compare all objects."""
    api.clean()
    wait_for(lambda: user.objects() == before, "nothing to be left", 60, detail=lambda: user.objects() ^ before)


def test_a_second_build_pushes_the_same_digests_and_writes_the_same_files(release: Release, figure: Figure) -> None:
    figure(f"make release: {release.seconds:.0f} s")
    files = sums(release)

    assert build(release.source, release.host) == release.digests
    assert sums(release) == files


def sums(release: Release) -> list[str]:
    """Return the lines of SHA256SUMS but those of sdist and OCI archive, which have the times of the build."""
    lines = (release.source / "dist" / "SHA256SUMS").read_text().splitlines()
    return [line for line in lines if not line.endswith((".tar.gz", ".oci.tar"))]


def test_helm_installs_a_release_and_an_uninstall_leaves_nothing(user: User, api: Api, release: Release) -> None:
    before = user.objects()
    user.from_docs("helm install kube-chores oci://ghcr.io/OWNER/charts/kube-chores")
    user.from_docs("kubectl label namespace kube-chores")
    run_two_jobs(user, api)
    assert release.pulls() >= {release.digests["image"]}
    assert len(user.objects() - before) > 50

    user.from_docs("helm uninstall kube-chores")
    user.from_docs("kubectl delete namespaces kube-chores kube-chores-mirrors kube-chores-nodes")
    user.from_docs("kubectl delete crds,priorityclasses,validatingadmissionpolicies,validatingadmissionpolicybindings")
    remove_copies(api, before, user)


def test_kubectl_installs_a_release_from_its_repository(user: User, api: Api) -> None:
    before = user.objects()
    user.download("kustomization.yaml")
    user.append("kustomization.yaml", COMPONENTS)
    user.from_docs("kubectl apply -k .")
    wait_until_policies_act(api)
    user.download("kube-chores.yaml")
    user("kubectl diff -f kube-chores.yaml")
    run_two_jobs(user, api)

    user("kubectl delete -k .")
    remove_copies(api, before, user)
