"""What kube-controller-manager does for the API's users: namespaces, garbage collection, CRD removal, aggregation."""

from __future__ import annotations

import threading
from typing import Any

from ..schema.resources import CLUSTER_ROLES, CONFIG_MAPS, CRDS, NAMESPACES, SERVICE_ACCOUNTS, Resource
from .cluster import Cluster, custom_resources, now
from .deletes import CLEANUP, remove
from .managed_fields import Manager, updated
from .store import Change, Stored

Obj = dict[str, Any]
AUTHORITY = "kube-root-ca.crt"
_USE = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)
_CERTIFICATE = "-----BEGIN CERTIFICATE-----\nsandbox\n-----END CERTIFICATE-----\n"


class Controllers:
    """One thread that follows the store's changes and reacts to them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sandbox-controllers", daemon=True)
        self._last_version = cluster.store.version

    def start(self) -> None:
        """Begin to react."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        with self._cluster.store.changed:
            self._cluster.store.changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        store = self._cluster.store
        while not self._stop.is_set():
            with store.changed:
                log = store.log if self._behind() else []
                fresh = [change for change in log if change.version > self._last_version]
                if not fresh:
                    store.changed.wait(1.0)
                    continue
                self._last_version = fresh[-1].version
                for change in fresh:
                    self._react(change)

    def _behind(self) -> bool:
        log = self._cluster.store.log
        return bool(log) and log[-1].version > self._last_version

    def _react(self, change: Change) -> None:
        if change.resource == NAMESPACES.key:
            self._namespace(change)
        elif change.resource == CLUSTER_ROLES.key:
            aggregate(self._cluster)
        elif change.resource == CRDS.key:
            self._definition(change)
        if change.type == "DELETED":
            self._restore(change)
            self._collect(change.item)
            self._finalize_namespace(change.item.namespace)
            for crd in self._cluster.store.items(CRDS):
                if change.resource == (crd.obj["spec"]["group"], crd.obj["spec"]["names"]["plural"]):
                    self._definition(Change(0, "MODIFIED", CRDS.key, crd))
        elif change.item.obj["metadata"].get("deletionTimestamp"):
            self._release(change)
        if change.type != "DELETED" and change.item.obj["metadata"].get("ownerReferences"):
            self._collect_if_orphaned(change)

    def _restore(self, change: Change) -> None:
        """Create what every namespace has again, if it was deleted."""
        namespace = self._cluster.namespace(change.item.namespace)
        is_in_each = change.resource in (CONFIG_MAPS.key, SERVICE_ACCOUNTS.key)
        if is_in_each and namespace and not namespace.obj["metadata"].get("deletionTimestamp"):
            furnish(self._cluster, namespace.name)

    def _resources(self) -> list[Resource]:
        return [resource for resource in self._cluster.resources() if resource.stored]

    def _namespace(self, change: Change) -> None:
        name = change.item.name
        if change.type == "DELETED":
            return
        if change.item.obj["metadata"].get("deletionTimestamp"):
            for resource in self._resources():
                if resource.namespaced:
                    for item in self._cluster.store.items(resource, name):
                        remove(self._cluster, resource, item)
            self._finalize_namespace(name)
        elif change.type == "ADDED":
            furnish(self._cluster, name)

    def _finalize_namespace(self, name: str) -> None:
        item = self._cluster.namespace(name) if name else None
        if item is None or not item.obj["metadata"].get("deletionTimestamp"):
            return
        store = self._cluster.store
        if any(store.items(resource, name) for resource in self._resources() if resource.namespaced):
            return
        finalizers = [entry for entry in item.obj["spec"].get("finalizers") or [] if entry != "kubernetes"]
        if not finalizers and not item.obj["metadata"].get("finalizers"):
            store.remove(NAMESPACES, item)
        elif finalizers != item.obj["spec"].get("finalizers"):
            spec = {key: value for key, value in item.obj["spec"].items() if key != "finalizers"}
            store.put(NAMESPACES, {**item.obj, "spec": {**spec, **({"finalizers": finalizers} if finalizers else {})}})

    def _definition(self, change: Change) -> None:
        """A CRD that is deleted takes its custom resources along, and waits for those that finalizers hold."""
        crd = self._cluster.store.get(CRDS, "", change.item.name)
        if crd is None or CLEANUP not in (crd.obj["metadata"].get("finalizers") or []):
            return
        served = custom_resources(crd)
        for resource in served:
            for item in self._cluster.store.items(resource):
                remove(self._cluster, resource, item)
        self._release_definition(crd, served)

    def _release_definition(self, crd: Stored, served: list[Resource]) -> None:
        if any(self._cluster.store.items(resource) for resource in served):
            return
        left = [name for name in crd.obj["metadata"]["finalizers"] if name != CLEANUP]
        meta = {key: value for key, value in crd.obj["metadata"].items() if key != "finalizers" or left}
        item = self._cluster.store.put(
            CRDS, {**crd.obj, "metadata": {**meta, **({"finalizers": left} if left else {})}}
        )
        if not left:
            self._cluster.store.remove(CRDS, item)

    def _dependents(self, uid: str) -> list[tuple[Resource, Stored]]:
        return [
            (resource, item)
            for resource in self._resources()
            for item in self._cluster.store.items(resource)
            if any(owner.get("uid") == uid for owner in item.obj["metadata"].get("ownerReferences") or ())
        ]

    def _collect(self, deleted: Stored) -> None:
        uid = deleted.obj["metadata"]["uid"]
        for resource, item in self._dependents(uid):
            references = item.obj["metadata"]["ownerReferences"]
            if any(self._exists(owner, item) for owner in references if owner.get("uid") != uid):
                self._disown(resource, item, uid)
            else:
                remove(self._cluster, resource, item)

    def _disown(self, resource: Resource, item: Stored, uid: str) -> None:
        meta = dict(item.obj["metadata"])
        meta["ownerReferences"] = [owner for owner in meta["ownerReferences"] if owner.get("uid") != uid]
        if not meta["ownerReferences"]:
            del meta["ownerReferences"]
        self._cluster.store.put(resource, {**item.obj, "metadata": meta})

    def _exists(self, owner: Obj, item: Stored) -> bool:
        resource = self._cluster.of_kind(owner.get("apiVersion", ""), owner.get("kind", ""))
        if resource is None:
            return True
        namespace = item.namespace if resource.namespaced else ""
        found = self._cluster.store.get(resource, namespace, owner.get("name", ""))
        return bool(found and found.obj["metadata"]["uid"] == owner.get("uid"))

    def _collect_if_orphaned(self, change: Change) -> None:
        """Delete what names no owner that is there, as it is by now: it may have been given another one."""
        resource = next((each for each in self._resources() if each.key == change.resource), None)
        if resource is None:
            return
        item = self._cluster.store.get(resource, change.item.namespace, change.item.name)
        if item is None or item.obj["metadata"]["uid"] != change.item.obj["metadata"]["uid"]:
            return
        owners = item.obj["metadata"].get("ownerReferences") or []
        if owners and not any(self._exists(owner, item) for owner in owners):
            remove(self._cluster, resource, item)

    def _release(self, change: Change) -> None:
        """Take off the garbage collector's own finalizers once dependents are dealt with."""
        meta = change.item.obj["metadata"]
        blocking = [name for name in meta.get("finalizers") or [] if name in ("foregroundDeletion", "orphan")]
        resource = next((item for item in self._resources() if item.key == change.resource), None)
        if not blocking or resource is None:
            return
        for dependent, item in self._dependents(meta["uid"]):
            if "orphan" in blocking:
                self._disown(dependent, item, meta["uid"])
            else:
                remove(self._cluster, dependent, item)
        live = self._cluster.store.get(resource, change.item.namespace, change.item.name)
        if live is None or live.obj["metadata"]["uid"] != meta["uid"]:  # deleted, and perhaps recreated, meanwhile
            return
        left = [name for name in live.obj["metadata"].get("finalizers") or [] if name not in blocking]
        item = self._cluster.store.put(resource, {**live.obj, "metadata": {**live.obj["metadata"], "finalizers": left}})
        if not left and (resource.kind != "Namespace" or not item.obj["spec"].get("finalizers")):
            self._cluster.store.remove(resource, item)


def furnish(cluster: Cluster, namespace: str) -> None:
    """Give a namespace what every namespace has."""
    if not cluster.store.get(CONFIG_MAPS, namespace, AUTHORITY):
        authority = {
            "metadata": {"name": AUTHORITY, "namespace": namespace, "annotations": {"kubernetes.io/description": _USE}},
            "data": {"ca.crt": _CERTIFICATE},
        }
        owner = Manager("kube-controller-manager", "Update", "v1")
        cluster.seed(CONFIG_MAPS, updated(CONFIG_MAPS.empty, authority, CONFIG_MAPS.shape, owner, now()))
    if not cluster.store.get(SERVICE_ACCOUNTS, namespace, "default"):
        cluster.seed(SERVICE_ACCOUNTS, {"metadata": {"name": "default", "namespace": namespace}})


def aggregate(cluster: Cluster) -> None:
    """Fill aggregated ClusterRoles: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#aggregated-clusterroles."""
    roles = cluster.store.items(CLUSTER_ROLES)
    for role in roles:
        rule = role.obj.get("aggregationRule")
        if not rule:
            continue
        rules: list[Obj] = []
        for other in roles:
            labels = other.obj["metadata"].get("labels") or {}
            chosen = any(
                selector.get("matchLabels") and selector["matchLabels"].items() <= labels.items()
                for selector in rule.get("clusterRoleSelectors") or []
            )
            if chosen and other.name != role.name:
                rules += [entry for entry in other.obj.get("rules") or [] if entry not in rules]
        if rules != (role.obj.get("rules") or []):
            cluster.store.put(CLUSTER_ROLES, {**role.obj, "rules": rules})
