"""The table of kinds: what is served, under which names, with which subresources."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .crd import Schema
from .fields import Shape
from .shapes import BASE, shape_of

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Resource:
    """One resource of one API version."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    stored: bool = True
    spec: bool = False
    create_on_update: bool = False
    returns_deleted: bool = False
    schema: Schema | None = None
    shape: Shape = field(default_factory=Shape)
    list_kind: str = ""

    @property
    def api_version(self) -> str:
        """v1, or kubechores.dev/v1."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """secrets, or copyrators.kubechores.dev."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def key(self) -> tuple[str, str]:
        """What the store files its objects under."""
        return (self.group, self.plural)

    @property
    def items_kind(self) -> str:
        """The kind of a list."""
        return self.list_kind or self.kind + "List"

    def ignored(self, subresource: str) -> frozenset[str]:
        """The top-level fields that a write leaves alone, so that it cannot own them."""
        if "status" not in self.subresources:
            return frozenset()
        return frozenset({"f:spec"} if subresource == "status" else {"f:status"})

    @property
    def empty(self) -> dict[str, Any]:
        """What an object of this kind has before anything is set: where managedFields starts from."""
        if self.schema:
            return {}
        return {"metadata": {}, **BASE.get(self.kind, {})}


def _built_in(api_version: str, kind: str, plural: str, *short_names: str, **more: Any) -> Resource:
    group, _, version = api_version.rpartition("/")
    made = Resource(
        group, version, kind, plural, singular=kind.lower(), short_names=short_names, shape=shape_of(kind), **more
    )
    _BUILT_IN.append(made)
    return made


_BUILT_IN: list[Resource] = []
RBAC = "rbac.authorization.k8s.io"
_RBAC, _ADMISSION = f"{RBAC}/v1", "admissionregistration.k8s.io/v1"
_GLOBAL: dict[str, Any] = {"namespaced": False}
_STATUS: dict[str, Any] = {"subresources": ("status",)}
_WORKLOAD: dict[str, Any] = {**_STATUS, "categories": ("all",), "spec": True}
_EXTENSION: dict[str, Any] = {**_GLOBAL, "categories": ("api-extensions",), "spec": True}
_REVIEW: dict[str, Any] = {**_GLOBAL, "verbs": ("create",), "stored": False}

CONFIG_MAPS = _built_in("v1", "ConfigMap", "configmaps", "cm")
EVENTS = _built_in("v1", "Event", "events", "ev", create_on_update=True)
LIMIT_RANGES = _built_in("v1", "LimitRange", "limitranges", "limits", create_on_update=True)
NAMESPACES = _built_in(
    "v1",
    "Namespace",
    "namespaces",
    "ns",
    subresources=("status", "finalize"),
    verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
    returns_deleted=True,
    **_GLOBAL,
)
NODES = _built_in("v1", "Node", "nodes", "no", **_GLOBAL, **_STATUS)
PERSISTENT_VOLUME_CLAIMS = _built_in("v1", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", **_STATUS)
PODS = _built_in("v1", "Pod", "pods", "po", **_WORKLOAD, returns_deleted=True)
RESOURCE_QUOTAS = _built_in("v1", "ResourceQuota", "resourcequotas", "quota", **_STATUS, returns_deleted=True)
SECRETS = _built_in("v1", "Secret", "secrets")
SERVICE_ACCOUNTS = _built_in(
    "v1", "ServiceAccount", "serviceaccounts", "sa", subresources=("token",), returns_deleted=True
)
SERVICES = _built_in("v1", "Service", "services", "svc", categories=("all",), subresources=("status", "proxy"))
DAEMON_SETS = _built_in("apps/v1", "DaemonSet", "daemonsets", "ds", **_WORKLOAD)
DEPLOYMENTS = _built_in("apps/v1", "Deployment", "deployments", "deploy", **_WORKLOAD)
STATEFUL_SETS = _built_in("apps/v1", "StatefulSet", "statefulsets", "sts", **_WORKLOAD)
ADMISSION_POLICIES = _built_in(
    _ADMISSION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", **_EXTENSION, **_STATUS
)
ADMISSION_POLICY_BINDINGS = _built_in(
    _ADMISSION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", **_EXTENSION
)
CRDS = _built_in(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    "crd",
    "crds",
    **_EXTENSION,
    **_STATUS,
)
CRON_JOBS = _built_in("batch/v1", "CronJob", "cronjobs", "cj", **_WORKLOAD)
JOBS = _built_in("batch/v1", "Job", "jobs", **_WORKLOAD)
ENDPOINT_SLICES = _built_in("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
PRIORITY_CLASSES = _built_in("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", "pc", **_GLOBAL)
STORAGE_CLASSES = _built_in("storage.k8s.io/v1", "StorageClass", "storageclasses", "sc", **_GLOBAL)
NETWORK_POLICIES = _built_in("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", "netpol", spec=True)
CLUSTER_ROLE_BINDINGS = _built_in(_RBAC, "ClusterRoleBinding", "clusterrolebindings", create_on_update=True, **_GLOBAL)
CLUSTER_ROLES = _built_in(_RBAC, "ClusterRole", "clusterroles", create_on_update=True, **_GLOBAL)
ROLE_BINDINGS = _built_in(_RBAC, "RoleBinding", "rolebindings", create_on_update=True)
ROLES = _built_in(_RBAC, "Role", "roles", create_on_update=True)
_built_in("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", **_REVIEW)
_built_in("authorization.k8s.io/v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", **_REVIEW)
_built_in("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", **_REVIEW)
BUILT_IN = tuple(_BUILT_IN)
