"""What kube-controller-manager does for the API's users: namespaces, garbage collection, CRD removal, aggregation."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

from ..schema.resources import CLUSTER_ROLES, CONFIG_MAPS, CRDS, NAMESPACES, SERVICE_ACCOUNTS, Resource
from .cluster import Cluster, custom_resources, now
from .deletes import CLEANUP, is_held, remove
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
                fresh = store.since(self._last_version)
                if not fresh:
                    store.changed.wait(1.0)
                    continue
                self._last_version = fresh[-1].version
                for change in fresh:
                    self._react(change)

    def _react(self, change: Change) -> None:
        item, is_deleted = change.item, change.type == "DELETED"
        is_ending = not is_deleted and bool(item.obj["metadata"].get("deletionTimestamp"))
        if change.resource == NAMESPACES.key and is_ending:
            for resource in self._resources():
                if resource.namespaced:
                    self._remove_all(resource, item.name)
            self._finalize_namespace(item.name)
        elif change.resource == NAMESPACES.key and change.type == "ADDED":
            furnish(self._cluster, item.name)
        elif change.resource == CLUSTER_ROLES.key:
            aggregate(self._cluster)
        elif change.resource == CRDS.key:
            self._finalize_definition(item.name)
        if is_deleted:
            self._clean_up(change)
        elif is_ending:
            self._release(change)
        if not is_deleted and item.obj["metadata"].get("ownerReferences"):
            self._collect_if_orphaned(change)

    def _clean_up(self, change: Change) -> None:
        """Do what follows from the deletion of an object."""
        item = change.item
        namespace = self._cluster.namespace(item.namespace)
        is_in_each = change.resource in (CONFIG_MAPS.key, SERVICE_ACCOUNTS.key)
        if is_in_each and namespace and not namespace.obj["metadata"].get("deletionTimestamp"):
            furnish(self._cluster, namespace.name)
        self._collect(item)
        self._finalize_namespace(item.namespace)
        for crd in self._cluster.store.items(CRDS):
            if change.resource == (crd.obj["spec"]["group"], crd.obj["spec"]["names"]["plural"]):
                self._finalize_definition(crd.name)

    def _resources(self) -> list[Resource]:
        return [resource for resource in self._cluster.resources() if resource.stored]

    def _remove_all(self, resource: Resource, namespace: str = "") -> None:
        for item in self._cluster.store.items(resource, namespace):
            remove(self._cluster, resource, item)

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

    def _finalize_definition(self, name: str) -> None:
        """A CRD that is deleted takes its custom resources along, and waits for those that finalizers hold."""
        crd = self._cluster.store.get(CRDS, "", name)
        if crd is None or CLEANUP not in (crd.obj["metadata"].get("finalizers") or []):
            return
        served = custom_resources(crd)
        for resource in served:
            self._remove_all(resource)
        if not any(self._cluster.store.items(resource) for resource in served):
            self._take_off(CRDS, crd, (CLEANUP,))

    def _take_off(self, resource: Resource, item: Stored, finalizers: Collection[str]) -> None:
        """Remove finalizers from an object that is being deleted, and the object if nothing else holds it."""
        left = [name for name in item.obj["metadata"].get("finalizers") or [] if name not in finalizers]
        obj = {**item.obj, "metadata": {**item.obj["metadata"], "finalizers": left}}
        if not left:
            del obj["metadata"]["finalizers"]
        item = self._cluster.store.put(resource, obj)
        if not is_held(resource, obj):
            self._cluster.store.remove(resource, item)

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
        named = (owner.get("apiVersion"), owner.get("kind"))
        resource = next((each for each in self._resources() if (each.api_version, each.kind) == named), None)
        if resource is None:
            return True
        namespace = item.namespace if resource.namespaced else ""
        found = self._cluster.store.get(resource, namespace, owner.get("name", ""))
        return bool(found and found.obj["metadata"]["uid"] == owner.get("uid"))

    def _live(self, change: Change) -> tuple[Resource, Stored] | None:
        """The object of a change as it is by now."""
        resource = next((each for each in self._resources() if each.key == change.resource), None)
        item = resource and self._cluster.store.get(resource, change.item.namespace, change.item.name)
        if not resource or not item:
            return None
        if item.obj["metadata"]["uid"] != change.item.obj["metadata"]["uid"]:  # deleted and recreated meanwhile
            return None
        return resource, item

    def _collect_if_orphaned(self, change: Change) -> None:
        """Delete what names no owner that is there, as it is by now: it may have been given another one."""
        if live := self._live(change):
            owners = live[1].obj["metadata"].get("ownerReferences") or []
            if owners and not any(self._exists(owner, live[1]) for owner in owners):
                remove(self._cluster, *live)

    def _release(self, change: Change) -> None:
        """Take off the garbage collector's own finalizers once dependents are dealt with."""
        meta = change.item.obj["metadata"]
        blocking = [name for name in meta.get("finalizers") or [] if name in ("foregroundDeletion", "orphan")]
        if not blocking:
            return
        for dependent, item in self._dependents(meta["uid"]):
            if "orphan" in blocking:
                self._disown(dependent, item, meta["uid"])
            else:
                remove(self._cluster, dependent, item)
        if live := self._live(change):
            self._take_off(*live, blocking)


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
