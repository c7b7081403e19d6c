"""The FarmPod: its name, its desired state, what is read of it, and what is written. Pure."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct, field

from jobs.kit.values import stamps
from jobs.kit.values.errors import InvalidObjectError
from jobs.kit.values.model import Body, FieldDiff, ObjectKey
from jobs.kit.values.reads import ManagedFieldsEntry, decode
from jobs.kit.values.resources import FARM_PODS, PODS
from jobs.kit.values.stamps import MANAGER

NAME = "farm-pods"
LABELS = {stamps.MANAGED_BY: MANAGER, stamps.JOB: NAME}
_LONGEST_NAME = 253  # https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
_DIGITS = 16  # of the hash in a name that was cut


def place(namespace: str, pod: str) -> ObjectKey:
    """Return the key of a pod's FarmPod, farm-POD; a longer name is cut and ends in a hash of the pod's name."""
    return ObjectKey(FARM_PODS.kind, _name(pod), namespace)


def _name(pod: str) -> str:
    name = f"farm-{pod}"
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(pod.encode()).hexdigest()[:_DIGITS]
    # A dot or a hyphen before the hyphen is not valid in a DNS subdomain name.
    return f"{name[: _LONGEST_NAME - _DIGITS - 1].rstrip('-.')}-{digest}"


class Pod(Struct, frozen=True, gc=False):
    """A pod, reduced to what users without permission to read pods may see of it.

    `containers` is None if only the metadata of the pod were read. The FarmPod of a `terminating` pod is deleted with
    it. Completed pods count until they are deleted.
    """

    namespace: str
    name: str
    uid: str
    containers: int | None
    terminating: bool = False

    @property
    def key(self) -> ObjectKey:
        """The key of the pod."""
        return ObjectKey(PODS.kind, self.name, self.namespace)

    @property
    def place(self) -> ObjectKey:
        """The key of its FarmPod."""
        return place(self.namespace, self.name)


class _PodMetadata(Struct, rename="camel"):
    """Without annotations: kubectl's last-applied-configuration contains the environment variables."""

    name: str
    namespace: str
    uid: str
    deletion_timestamp: str | None = None


class PodMetadata(Struct):
    """A pod in a list of metadata."""

    metadata: _PodMetadata


class _Container(Struct):
    """Nothing of it is decoded, since its environment variables may contain passwords."""


class _PodSpec(Struct):
    containers: list[_Container]


class PodObject(Struct):
    """A pod in the API's form. Containers are spec.containers, without init and ephemeral containers."""

    metadata: _PodMetadata
    spec: _PodSpec


def reduce_pod(found: PodMetadata | PodObject) -> Pod:
    """Return a pod in the API's form, reduced."""
    at, containers = found.metadata, len(found.spec.containers) if isinstance(found, PodObject) else None
    return Pod(sys.intern(at.namespace), at.name, at.uid, containers, at.deletion_timestamp is not None)


class _Spec(Struct, gc=False):
    pod: str
    containers: int


def _spec(raw: Raw) -> _Spec:
    try:
        found = decode(raw or b"null", _Spec)
    except InvalidObjectError:
        return _Spec("", -1)
    return _Spec(found.pod[: _LONGEST_NAME + 1], found.containers)


class _Owner(Struct, rename="camel", omit_defaults=True, gc=False):
    """All fields of an owner reference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


def _owner(pod: str, uid: str) -> _Owner:
    """Return the reference by which the garbage collector deletes a FarmPod with its pod, so that the job need not.

    blockOwnerDeletion stays unset: it needs permission to update the pod's finalizers, or to delete pods.
    https://kubernetes.io/docs/concepts/architecture/garbage-collection/#owners-dependents
    https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#ownerreferencespermissionenforcement
    """
    return _Owner(PODS.api_version, PODS.kind, pod, uid)


class _FarmPodMetadata(Struct, rename="camel", gc=False):
    """All that is compared is decoded in one step, since a run reads thousands."""

    name: Annotated[str, Meta(min_length=1)]
    namespace: str
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    managed_fields: list[ManagedFieldsEntry] | None = None


class _FarmPodObject(Struct, gc=False):
    """A FarmPod in the API's form; its spec stays raw, so that one that is not valid does not fail a list."""

    metadata: _FarmPodMetadata
    spec: Raw = Raw()


def reduce_farm_pod(raw: bytes | Raw) -> FarmPod:
    """Return a FarmPod in the API's form, reduced.

    Raises:
        InvalidObjectError: its metadata cannot be decoded.
    """
    found = decode(raw, _FarmPodObject)
    at, spec = found.metadata, _spec(found.spec)
    owners = at.owner_references or []
    owner = owners[0] if len(owners) == 1 else _Owner()
    uid = owner.uid if owner == _owner(owner.name, owner.uid) and _name(owner.name) == at.name else ""
    namespace, _, source = (at.annotations or {}).get(stamps.SOURCE, "").partition("/")
    return FarmPod(
        ObjectKey(FARM_PODS.kind, at.name, sys.intern(at.namespace)),
        stamps.is_managed(at.labels or {}, NAME, ""),
        at.deletion_timestamp is not None,
        spec.pod,
        spec.containers,
        uid,
        bool(owners),
        namespace == at.namespace and _name(source) == at.name,
        # The generation increases with each change of the spec, also by a client that uses the name of this job.
        bool(uid) and at.generation == 1 and _is_as_written(at.managed_fields or (), uid),
    )


class _OwnedMetadata(Struct, gc=False):
    owner_references: dict[str, Any] = field(name="f:ownerReferences", default_factory=dict)


class _OwnedFields(Struct, gc=False):
    """The fields of a FarmPod that one manager owns, reduced to those that decide about its number of containers."""

    metadata: _OwnedMetadata = field(name="f:metadata", default_factory=_OwnedMetadata)
    spec: dict[str, Any] = field(name="f:spec", default_factory=dict)


def _is_as_written(entries: Iterable[ManagedFieldsEntry], owner: str) -> bool:
    """Whether the number of containers is the one that this job wrote together with the owner that has this uid.

    The API server records who changed a field last. If that is this job for both fields, the number is still correct:
    the containers of a pod cannot be added or removed, and no other pod gets its uid.

    https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
    https://kubernetes.io/docs/concepts/workloads/pods/#pod-update-and-replacement
    """
    is_own = False
    for each in entries:
        try:
            fields = decode(each.fields_v1, _OwnedFields)
        except InvalidObjectError:  # a client can send an invalid entry
            return False
        references, has_containers = fields.metadata.owner_references, "f:containers" in fields.spec
        if each.manager != MANAGER:
            if references or has_containers:
                return False
        elif has_containers and f'k:{{"uid":"{owner}"}}' in references:
            is_own = True
    return is_own


class FarmPod(Struct, frozen=True, gc=False):
    """A FarmPod that exists, reduced: a run keeps all of them in memory.

    `managed` is whether this job created it. `owner` is the uid of the pod that is its only owner, `owned` whether it
    has any owner and is deleted with it. `has_source` is whether its source annotation names the pod of its name.
    `as_written` is whether its number of containers is known to be that of the owner, as this job wrote it.
    `document` is its JSON from a single read; a run may keep one for each pod.
    """

    key: ObjectKey
    managed: bool
    terminating: bool
    pod: str
    containers: int
    owner: str
    owned: bool
    has_source: bool
    as_written: bool
    document: bytes = b""

    def is_desired(self, pod: Pod) -> bool:
        """Whether it is the desired FarmPod of this pod: also known if only the pod's metadata were read."""
        is_of_pod = self.owner == pod.uid and self.pod == pod.name and self.has_source
        return is_of_pod and (self.as_written if pod.containers is None else self.containers == pod.containers)

    def differences(self, pod: Pod) -> tuple[FieldDiff, ...]:
        """Return the fields that differ from the desired FarmPod of this pod, which was read in full."""
        source = f"metadata.annotations[{stamps.SOURCE}]"
        desired = f"{pod.namespace}/{pod.name}"
        fields = (
            FieldDiff("metadata.ownerReferences", self.owner or None, pod.uid),
            FieldDiff("spec.containers", str(self.containers), str(pod.containers)),
            FieldDiff("spec.pod", self.pod, pod.name),
            FieldDiff(source, desired if self.has_source else None, desired),
        )
        return tuple(each for each in fields if each.actual != each.desired)


class FarmPodManifest(Body, frozen=True, gc=False):
    """The FarmPod of a pod, to be written. `before` is the JSON of exactly the version that it replaces, if any.

    Labels, annotations and finalizers of others stay. The pod is its only owner; with another owner it would remain
    after the pod.
    """

    pod: Pod
    before: bytes = b"{}"

    def encode(self) -> bytes:
        """Return the object as JSON."""
        before = msgspec.json.decode(self.before).get("metadata", {})
        at, pod = self.pod.place, self.pod
        metadata = {
            **before,
            "name": at.name,
            "namespace": at.namespace,
            "labels": {**before.get("labels", {}), **LABELS},
            "annotations": {**before.get("annotations", {}), stamps.SOURCE: f"{pod.namespace}/{pod.name}"},
            "ownerReferences": [_owner(pod.name, pod.uid)],
        }
        assert pod.containers is not None, "the plan reads the pod first"
        head = {"apiVersion": FARM_PODS.api_version, "kind": FARM_PODS.kind}
        return msgspec.json.encode({**head, "metadata": metadata, "spec": _Spec(pod.name, pod.containers)})

    def changed_by_server(self, response: bytes) -> tuple[str, ...]:
        """Return the fields in which the server's response differs: admission changed them."""
        return tuple(difference.field for difference in reduce_farm_pod(response).differences(self.pod))
