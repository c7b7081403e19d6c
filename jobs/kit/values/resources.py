"""The kinds of objects that jobs read and write, the URL paths where the API serves them, and their names. Pure.

https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote

LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"  # a DNS label, as a regular expression
KEY_NAME = "roll-workloads-key"  # a Secret: docs/roll-workloads.md#the-key-for-fingerprints
_LABEL = re.compile(LABEL)
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_OF_LABEL = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class Resource(NamedTuple):
    """A kind of object and where the API serves it.

    `is_object` is false for the responses of a Service through the proxy of the API server.
    """

    api_version: str
    kind: str
    plural: str
    is_object: bool = True

    def path(self, namespace: str = "", name: str = "") -> str:
        """Return the URL path of one object, of a namespace's objects, or of all objects of this kind."""
        if self.is_object:  # a name that is not valid must not lead to another path
            namespace, name = quote(namespace, safe=":"), quote(name, safe=":")
        root = f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        where = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{where}/{self.plural}" + (f"/{name}" if name else "")


def by_kind(*resources: Resource) -> Mapping[str, Resource]:
    """Return where the API serves each kind, as a Job needs it."""
    return {resource.kind: resource for resource in resources}


# Built in, by API group.
NAMESPACES = Resource("v1", "Namespace", "namespaces")
CONFIGMAPS = Resource("v1", "ConfigMap", "configmaps")
SECRETS = Resource("v1", "Secret", "secrets")
EVENTS = Resource("v1", "Event", "events")
PODS = Resource("v1", "Pod", "pods")
NODES = Resource("v1", "Node", "nodes")
SERVICE_ACCOUNTS = Resource("v1", "ServiceAccount", "serviceaccounts")
LIMIT_RANGES = Resource("v1", "LimitRange", "limitranges")
RESOURCE_QUOTAS = Resource("v1", "ResourceQuota", "resourcequotas")
SERVICES = Resource("v1", "Service", "services")
CLAIMS = Resource("v1", "PersistentVolumeClaim", "persistentvolumeclaims")
DEPLOYMENTS = Resource("apps/v1", "Deployment", "deployments")
STATEFUL_SETS = Resource("apps/v1", "StatefulSet", "statefulsets")
DAEMON_SETS = Resource("apps/v1", "DaemonSet", "daemonsets")
ROLLOUTS = Resource("argoproj.io/v1alpha1", "Rollout", "rollouts")  # of Argo Rollouts
CRON_JOBS = Resource("batch/v1", "CronJob", "cronjobs")
JOBS = Resource("batch/v1", "Job", "jobs")
ENDPOINT_SLICES = Resource("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
NETWORK_POLICIES = Resource("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
PRIORITY_CLASSES = Resource("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses")
STORAGE_CLASSES = Resource("storage.k8s.io/v1", "StorageClass", "storageclasses")
CLUSTER_PROFILES = Resource(
    "multicluster.x-k8s.io/v1alpha1", "ClusterProfile", "clusterprofiles"
)  # of SIG Multicluster
CRDS = Resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions")
# A GET of a Service through the API server. The name of such an "object" ends with the path of the request.
# https://kubernetes.io/docs/tasks/access-application-cluster/access-cluster-services/#manually-constructing-apiserver-proxy-urls
SERVICE_PROXY = Resource("v1", "ServiceProxy", "services", is_object=False)

# Custom resources: cronjobs/crds.
RULES = Resource("kubechores.dev/v1", "CopyratorRule", "copyrators")
EXCHANGE_RATES = Resource("kubechores.dev/v1", "ExchangeRate", "exchangerates")
REGISTRY_MIRRORS = Resource("kubechores.dev/v1", "RegistryMirror", "registrymirrors")
FARM_PODS = Resource("kubechores.dev/v1", "FarmPod", "farmpods")
LLAMAS = Resource("kubechores.dev/v1", "Llama", "llamas")  # commands/demo.py finds it by its kind


def is_name(text: object) -> bool:
    """Whether the API allows this name of an object of most kinds: labels of any length, with dots between them."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def is_label(text: str) -> bool:
    """Whether the API allows this name of a Namespace: a DNS label, without dots."""
    return _LABEL.fullmatch(text) is not None


def key_problems(key: str, path: str) -> Iterator[str]:
    """Yield the problems of the key of a label, annotation or taint."""
    prefix, slash, name = key.rpartition("/")
    if not _OF_LABEL.fullmatch(name) or (slash and not is_name(prefix)):
        yield f"{path}: {key!r} is not a valid key; use at most 63 of A-Z a-z 0-9 - _ . after an optional PREFIX/"


def value_problems(value: str, path: str) -> Iterator[str]:
    """Yield the problems of the value of a label or taint."""
    if value and not _OF_LABEL.fullmatch(value):
        remedy = "use at most 63 of A-Z a-z 0-9 - _ . and begin and end with a letter or digit"
        yield f"{path}: {value!r} is not a valid label value; {remedy}"
