"""The table of kinds: what is served, under which names, with which subresources."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .crd import Schema
from .fields import Shape
from .shapes import BASE, shape_of

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


def qualified(plural: str, group: str) -> str:
    """secrets, or copyrators.kubechores.dev."""
    return f"{plural}.{group}" if group else plural


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
        return qualified(self.plural, self.group)

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


def _built_in(group: str, version: str, kind: str, plural: str, **more: Any) -> Resource:
    more.setdefault("singular", kind.lower())
    return Resource(group, version, kind, plural, shape=shape_of(kind), **more)


RBAC = "rbac.authorization.k8s.io"
NAMESPACES = _built_in(
    "",
    "v1",
    "Namespace",
    "namespaces",
    namespaced=False,
    short_names=("ns",),
    subresources=("status", "finalize"),
    verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
    returns_deleted=True,
)
CONFIG_MAPS = _built_in("", "v1", "ConfigMap", "configmaps", short_names=("cm",))
SECRETS = _built_in("", "v1", "Secret", "secrets")
SERVICE_ACCOUNTS = _built_in(
    "", "v1", "ServiceAccount", "serviceaccounts", short_names=("sa",), subresources=("token",), returns_deleted=True
)
LIMIT_RANGES = _built_in("", "v1", "LimitRange", "limitranges", short_names=("limits",), create_on_update=True)
RESOURCE_QUOTAS = _built_in(
    "",
    "v1",
    "ResourceQuota",
    "resourcequotas",
    short_names=("quota",),
    subresources=("status",),
    returns_deleted=True,
)
EVENTS = _built_in("", "v1", "Event", "events", short_names=("ev",), create_on_update=True)
PODS = _built_in(
    "",
    "v1",
    "Pod",
    "pods",
    short_names=("po",),
    categories=("all",),
    subresources=("status",),
    spec=True,
    returns_deleted=True,
)
ROLES = _built_in(RBAC, "v1", "Role", "roles", create_on_update=True)
CLUSTER_ROLES = _built_in(RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False, create_on_update=True)
ROLE_BINDINGS = _built_in(RBAC, "v1", "RoleBinding", "rolebindings", create_on_update=True)
CLUSTER_ROLE_BINDINGS = _built_in(
    RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False, create_on_update=True
)
CRDS = _built_in(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    subresources=("status",),
    spec=True,
)
CRON_JOBS = _built_in(
    "batch", "v1", "CronJob", "cronjobs", short_names=("cj",), categories=("all",), subresources=("status",), spec=True
)
JOBS = _built_in("batch", "v1", "Job", "jobs", categories=("all",), subresources=("status",), spec=True)
NETWORK_POLICIES = _built_in(
    "networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", short_names=("netpol",), spec=True
)


SERVICES = _built_in(
    "", "v1", "Service", "services", short_names=("svc",), categories=("all",), subresources=("status", "proxy")
)
PERSISTENT_VOLUME_CLAIMS = _built_in(
    "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", short_names=("pvc",), subresources=("status",)
)
NODES = _built_in("", "v1", "Node", "nodes", namespaced=False, short_names=("no",), subresources=("status",))
STATEFUL_SETS = _built_in(
    "apps",
    "v1",
    "StatefulSet",
    "statefulsets",
    short_names=("sts",),
    categories=("all",),
    subresources=("status",),
    spec=True,
)
DEPLOYMENTS = _built_in(
    "apps",
    "v1",
    "Deployment",
    "deployments",
    short_names=("deploy",),
    categories=("all",),
    subresources=("status",),
    spec=True,
)
DAEMON_SETS = _built_in(
    "apps",
    "v1",
    "DaemonSet",
    "daemonsets",
    short_names=("ds",),
    categories=("all",),
    subresources=("status",),
    spec=True,
)
ENDPOINT_SLICES = _built_in("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
PRIORITY_CLASSES = _built_in(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False, short_names=("pc",)
)
STORAGE_CLASSES = _built_in(
    "storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False, short_names=("sc",)
)
ADMISSION = "admissionregistration.k8s.io"
ADMISSION_POLICIES = _built_in(
    ADMISSION,
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    namespaced=False,
    categories=("api-extensions",),
    subresources=("status",),
    spec=True,
)
ADMISSION_POLICY_BINDINGS = _built_in(
    ADMISSION,
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    namespaced=False,
    categories=("api-extensions",),
    spec=True,
)


def _review(group: str, kind: str, plural: str, namespaced: bool = False) -> Resource:
    return _built_in(group, "v1", kind, plural, namespaced=namespaced, verbs=("create",), stored=False)


REVIEWS = (
    _review("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
    _review("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews"),
    _review("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews"),
)

BUILT_IN = (
    CONFIG_MAPS,
    EVENTS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    DAEMON_SETS,
    DEPLOYMENTS,
    STATEFUL_SETS,
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    CRDS,
    CRON_JOBS,
    JOBS,
    ENDPOINT_SLICES,
    PRIORITY_CLASSES,
    STORAGE_CLASSES,
    NETWORK_POLICIES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    *REVIEWS,
)
