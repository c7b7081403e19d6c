"""What the token of each shipped account can do to objects of others: the table of docs/security.md."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.apis import Api, Object, real_api
from tests.cluster.test_policies import (
    COPY,
    DELETED_OWNER,
    OWN_ROLE,
    PUSHED,
    Client,
    binding,
    image,
    labelled,
    pod_spec,
    rate,
    token_of,
)
from tests.control_plane import ControlPlane
from tests.generated import check, with_rows
from tests.manifests import ROOT, everything
from tests.more_kinds import MORE_KINDS, of_kind
from tests.worlds import configmap, secret

pytestmark = pytest.mark.cluster
ACCOUNTS = sorted(obj["metadata"]["name"] for obj in everything() if obj["kind"] == "ServiceAccount")
# Mirrors are in separate namespaces, where some accounts have more rights.
OF_MIRRORS = [
    name for obj in everything() if obj["kind"] == "Namespace" and (name := obj["metadata"]["name"]) != "kube-chores"
]
LABELS: tuple[dict[str, str], ...] = ({}, COPY, PUSHED)
_numbers = itertools.count()


@pytest.fixture
def servers(
    plane: ControlPlane,
    manifests: dict[str, Object],
    plane_without_policies: ControlPlane,
    manifests_without_policies: dict[str, Object],
    tmp_path: Path,
) -> Iterator[list[Api]]:
    """The control plane without the admission policies, then the one with them."""
    found = [
        real_api(plane_without_policies, tmp_path, manifests_without_policies),
        real_api(plane, tmp_path, manifests),
    ]
    yield found
    for api in found:
        api.clean()


def fresh(obj: Object) -> Object:
    """Give an object a unique name."""
    return {**obj, "metadata": {**obj["metadata"], "name": f"{obj['metadata']['name']}-{next(_numbers)}"}}


def a_secret(client: Client) -> Object:
    return client.existing(fresh(secret(client.team, labels={})))


def a_workload(client: Client, kind: str) -> Object:
    labels = {"app": f"web-{next(_numbers)}"}
    pod = {"metadata": {"labels": labels}, "spec": pod_spec(nodeSelector={"no": "node"})}
    metadata = {
        "name": labels["app"],
        "namespace": client.team,
        "annotations": {"kubechores.dev/roll-on-config-change": "true"},
    }
    spec = {"selector": {"matchLabels": labels}, "template": pod}
    return client.existing({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec})


def mints(client: Client) -> bool:
    return any(done(client.post(fresh(token_of(labels, client.team)))) for labels in LABELS)


def reads(client: Client) -> bool:
    made = a_secret(client)
    paths = (client.api.path(made), client.api.path(made, named=False))
    return any(done(client.api.request("GET", each, token=client.token)) for each in paths)


def replaces(client: Client) -> bool:
    return any(done(client.put(labelled(a_secret(client), labels))) for labels in LABELS) or done(
        client.patch(a_secret(client), {"metadata": {"labels": COPY}})
    )


def deletes(client: Client) -> bool:
    return done(client.delete(a_secret(client)))


def writes_to_kube_system(client: Client) -> bool:
    made = [make("kube-system", labels=labels) for make in (configmap, secret) for labels in LABELS]
    return any(done(client.post(fresh(body))) for body in (*made, rate(client, "kube-system")))


def changes_an_image(client: Client) -> bool:
    return any(done(client.patch(a_workload(client, kind), image("x"))) for kind in ("Deployment", "DaemonSet"))


def deletes_a_workload(client: Client) -> bool:
    collected = {"metadata": {"ownerReferences": [DELETED_OWNER]}}
    return any(
        done(client.delete(a_workload(client, kind))) or done(client.patch(a_workload(client, kind), collected))
        for kind in ("Deployment", "DaemonSet")
    )


def binds_cluster_admin(client: Client) -> bool:
    rbac = "rbac.authorization.k8s.io"
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": rbac, "kind": "Group", "name": "system:serviceaccounts:kube-chores"}
    body = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": f"x-{client.team}"}}
    return done(client.post({**body, "roleRef": role, "subjects": [subject]}))


def binds_another_role(client: Client) -> bool:
    """Try ClusterRoles that no role names: one with rights that the account lacks, and one with rights that it has."""
    bindings = [binding(client, "ClusterRole", role, labels) for role in ("edit", OWN_ROLE) for labels in LABELS]
    return any(done(client.post(fresh(each))) for each in bindings)


def creates_more_than_copies(client: Client) -> bool:
    objects = [of_kind(kind, client.team, name="more") for kind in MORE_KINDS]
    return any(done(client.post(fresh(each))) for each in objects)


def done(answer: tuple[int, Any, bytes]) -> bool:
    """Whether an attempt succeeded. A failed attempt must be forbidden, not fail for another reason."""
    assert answer[0] < 300 or answer[0] == 403, answer
    return answer[0] < 300


ACTIONS: Mapping[str, Callable[[Client], bool]] = {
    "mint a token": mints,
    "read a foreign Secret": reads,
    "replace it": replaces,
    "delete it": deletes,
    "write to kube-system": writes_to_kube_system,
    "change an image": changes_an_image,
    "delete a workload": deletes_a_workload,
    "bind cluster-admin": binds_cluster_admin,
    "bind a ClusterRole that is not named": binds_another_role,
    "create a NetworkPolicy, RoleBinding or ServiceAccount that is not a copy": creates_more_than_copies,
}


def where(api: Api, account: str, act: Callable[[Client], bool], team: str) -> str:
    """Return where the token of an account can do something: "yes", "no" or "in NAMESPACE"."""
    token = api.service_account_token("kube-chores", account)
    if act(Client(api, token, team)):
        return "yes"
    namespaces = [namespace for namespace in OF_MIRRORS if act(Client(api, token, namespace))]
    return f"in {' and '.join(namespaces)}" if namespaces else "no"


def cell(without: str, with_policies: str) -> str:
    return without if without == with_policies else f"{without}; with the policies {with_policies}"


def test_the_table_of_stolen_tokens_matches_what_they_can_do(servers: list[Api]) -> None:
    teams = [api.namespace("team") for api in servers]
    rows = [["account", *ACTIONS], ["---"] * (len(ACTIONS) + 1)]
    for account in ACCOUNTS:
        found = (
            [where(api, account, act, team) for api, team in zip(servers, teams, strict=True)]
            for act in ACTIONS.values()
        )
        rows.append([account, *(cell(*each) for each in found)])
    path, begin = (
        ROOT / "docs" / "security.md",
        "<!-- stolen tokens: UPDATE_DOCS=1 pytest tests/cluster/test_stolen_tokens.py -->",
    )

    check(path, with_rows(path.read_text(), begin, (f"| {' | '.join(row)} |" for row in rows)))
