"""What the token of each shipped account can do to what is not its own: the table of docs/security.md."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.apis import Api, Object, real_api
from tests.cluster.test_policies import COPY, GONE, Thief, image, labelled, pod_spec, rate, token_of
from tests.control_plane import ControlPlane
from tests.manifests import ROOT, everything
from tests.unit.test_docs import check
from tests.worlds import configmap, secret

pytestmark = pytest.mark.cluster
ACCOUNTS = sorted(obj["metadata"]["name"] for obj in everything() if obj["kind"] == "ServiceAccount")
# Mirrors are in namespaces of their own, where some accounts have more rights.
OF_MIRRORS = [
    name for obj in everything() if obj["kind"] == "Namespace" and (name := obj["metadata"]["name"]) != "kube-chores"
]
_numbers = itertools.count()


@pytest.fixture
def servers(
    plane: ControlPlane,
    manifests: dict[str, Object],
    plane_without_policies: ControlPlane,
    manifests_without_policies: dict[str, Object],
    tmp_path: Path,
) -> Iterator[list[Api]]:
    """The control plane without the admission policies, and the one with them."""
    found = [
        real_api(plane_without_policies, tmp_path, manifests_without_policies),
        real_api(plane, tmp_path, manifests),
    ]
    yield found
    for api in found:
        api.clean()


def fresh(obj: Object) -> Object:
    """Give an object a name that no other has."""
    return {**obj, "metadata": {**obj["metadata"], "name": f"{obj['metadata']['name']}-{next(_numbers)}"}}


def a_secret(thief: Thief) -> Object:
    return thief.theirs(fresh(secret(thief.team, labels={})))


def a_workload(thief: Thief, kind: str) -> Object:
    labels = {"app": f"web-{next(_numbers)}"}
    pod = {"metadata": {"labels": labels}, "spec": pod_spec(nodeSelector={"no": "node"})}
    metadata = {
        "name": labels["app"],
        "namespace": thief.team,
        "annotations": {"kubechores.dev/roll-on-config-change": "true"},
    }
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    return thief.theirs({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec})


def mints(thief: Thief) -> bool:
    return any(done(thief.post(fresh(token_of(labels, thief.team)))) for labels in ({}, COPY))


def reads(thief: Thief) -> bool:
    return done(thief.api.request("GET", thief.api.path(a_secret(thief)), token=thief.token))


def replaces(thief: Thief) -> bool:
    return any(done(thief.put(labelled(a_secret(thief), labels))) for labels in ({}, COPY)) or done(
        thief.patch(a_secret(thief), {"metadata": {"labels": COPY}})
    )


def deletes(thief: Thief) -> bool:
    return done(thief.delete(a_secret(thief)))


def writes_to_kube_system(thief: Thief) -> bool:
    bodies = (configmap("kube-system", labels={}), configmap("kube-system", labels=COPY), rate(thief, "kube-system"))
    return any(done(thief.post(fresh(body))) for body in (*bodies, secret("kube-system", labels=COPY)))


def changes_an_image(thief: Thief) -> bool:
    return any(done(thief.patch(a_workload(thief, kind), image("x"))) for kind in ("Deployment", "DaemonSet"))


def deletes_a_workload(thief: Thief) -> bool:
    collected = {"metadata": {"ownerReferences": [GONE]}}
    return any(
        done(thief.delete(a_workload(thief, kind))) or done(thief.patch(a_workload(thief, kind), collected))
        for kind in ("Deployment", "DaemonSet")
    )


def binds_cluster_admin(thief: Thief) -> bool:
    rbac = "rbac.authorization.k8s.io"
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": rbac, "kind": "Group", "name": "system:serviceaccounts:kube-chores"}
    body = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": f"x-{thief.team}"}}
    return done(thief.post({**body, "roleRef": role, "subjects": [subject]}))


def done(answer: tuple[int, Any, bytes]) -> bool:
    """Whether an attempt succeeded; what did not was forbidden, not in some other way wrong."""
    assert answer[0] < 300 or answer[0] == 403, answer
    return answer[0] < 300


DEEDS: Mapping[str, Callable[[Thief], bool]] = {
    "mint a token": mints,
    "read a foreign Secret": reads,
    "replace it": replaces,
    "delete it": deletes,
    "write to kube-system": writes_to_kube_system,
    "change an image": changes_an_image,
    "delete a workload": deletes_a_workload,
    "bind cluster-admin": binds_cluster_admin,
}


def able(api: Api, account: str, deed: Callable[[Thief], bool], team: str) -> str:
    """Where the token of an account can do something."""
    token = api.service_account_token("kube-chores", account)
    if deed(Thief(api, token, team)):
        return "yes"
    places = [place for place in OF_MIRRORS if deed(Thief(api, token, place))]
    return f"in {' and '.join(places)}" if places else "no"


def cell(without: str, with_policies: str) -> str:
    return without if without == with_policies else f"{without}; with the policies {with_policies}"


def test_the_table_of_stolen_tokens_is_what_they_can_do(servers: list[Api]) -> None:
    teams = [api.namespace("team") for api in servers]
    rows = [["account", *DEEDS], ["---"] * (len(DEEDS) + 1)]
    for account in ACCOUNTS:
        found = (
            [able(api, account, deed, team) for api, team in zip(servers, teams, strict=True)]
            for deed in DEEDS.values()
        )
        rows.append([account, *(cell(*each) for each in found)])
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    path = ROOT / "docs" / "security.md"
    head, begin, rest = path.read_text().partition(
        "<!-- stolen tokens: UPDATE_DOCS=1 pytest tests/cluster/test_stolen_tokens.py -->\n"
    )
    tail = rest.partition("<!-- end -->")[2]

    assert begin
    check(path, f"{head}{begin}{table}\n<!-- end -->{tail}")
