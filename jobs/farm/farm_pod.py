"""The FarmPod: what it is called, what it should be, what of one is looked at, and what writes it. Pure."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from jobs.kit import stamps
from jobs.kit.decoding import decode, decode_list
from jobs.kit.errors import InvalidObjectError
from jobs.kit.model import Change, ObjectKey
from jobs.kit.objects import MANAGER, Metadata, Resource, string_map

NAME = "farm-pods"
FARM_PODS = Resource("kubechores.dev/v1", "FarmPod", "farmpods")
PODS = Resource("v1", "Pod", "pods")
LABELS = {stamps.MANAGED_BY: MANAGER, stamps.JOB: NAME}
_LONGEST_NAME = 253  # https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
_DIGITS = 16  # of the hash in a name that was cut


def place(namespace: str, pod: str) -> ObjectKey:
    """Return where a pod's FarmPod is: farm-POD, or if that is too long its beginning and a hash of the pod's name."""
    name = f"farm-{pod}"
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(pod.encode()).hexdigest()[:_DIGITS]
        # What comes before a hyphen may not end in a dot.
        name = f"{name[: _LONGEST_NAME - _DIGITS - 1].rstrip('-.')}-{digest}"
    return ObjectKey(FARM_PODS.kind, name, namespace)


class Pod(Struct, frozen=True, gc=False):
    """A pod, reduced to what people may read of it who may not read pods.

    One that is `terminating` takes its FarmPod with it. Pods that have ended count until then.
    """

    namespace: str
    name: str
    uid: str
    containers: int
    terminating: bool = False

    @property
    def key(self) -> ObjectKey:
        """What names the pod."""
        return ObjectKey(PODS.kind, self.name, self.namespace)

    @property
    def place(self) -> ObjectKey:
        """Where its FarmPod is."""
        return place(self.namespace, self.name)


class _PodMetadata(Struct, rename="camel"):
    """Without annotations: kubectl's last-applied-configuration repeats the environment."""

    name: str
    namespace: str
    uid: str
    deletion_timestamp: str | None = None


class _Container(Struct):
    """A container to be counted: its environment may hold passwords, so nothing of it is decoded."""


class _PodSpec(Struct):
    containers: list[_Container]


class PodObject(Struct):
    """A pod as it comes. Containers are spec.containers: neither init containers nor ephemeral ones."""

    metadata: _PodMetadata
    spec: _PodSpec

    @property
    def reduced(self) -> Pod:
        """The pod."""
        at = self.metadata
        going = at.deletion_timestamp is not None
        return Pod(sys.intern(at.namespace), at.name, at.uid, len(self.spec.containers), going)


class _Spec(Struct):
    pod: str
    containers: int


class FarmPodObject(Struct):
    """A FarmPod as it comes; its spec stays raw, so that a bad one spoils no list."""

    metadata: Metadata
    spec: Raw = Raw()

    @property
    def reduced(self) -> FarmPod:
        """What is looked at."""
        at, spec = self.metadata, _spec(self.spec)
        owners = decode_list(at.owner_references, dict[str, Any])
        namespace, _, source = string_map(at.annotations).get(stamps.SOURCE, "").partition("/")
        return FarmPod(
            stamps.is_managed(string_map(at.labels), NAME, ""),
            at.deletion_timestamp is not None,
            spec.pod,
            spec.containers,
            _owner(at, owners),
            bool(owners),
            namespace == at.namespace and _is_of(at, source),
        )


def _spec(raw: Raw) -> _Spec:
    try:
        found = decode(raw or b"null", _Spec)
    except InvalidObjectError:
        return _Spec("", -1)
    return _Spec(found.pod[: _LONGEST_NAME + 1], found.containers)


def _owner(at: Metadata, references: Sequence[Mapping[str, Any]]) -> str:
    """Return the uid of the pod that alone owns it; empty where that is not so, or not as we set it."""
    if len(references) != 1:
        return ""
    name, uid = (str(references[0].get(field, "")) for field in ("name", "uid"))
    return uid if references == [_owner_reference(name, uid)] and _is_of(at, name) else ""


def _is_of(at: Metadata, pod: str) -> bool:
    """Whether the FarmPod at this place is that of a pod of this name."""
    return place(at.namespace, pod).name == at.name


def _owner_reference(pod: str, uid: str) -> dict[str, str]:
    """Return what has the garbage collector remove a FarmPod when its pod is gone, so that the job deletes nothing.

    blockOwnerDeletion stays unset: it takes a right on the pod's finalizers, or that to delete pods.
    https://kubernetes.io/docs/concepts/architecture/garbage-collection/#owners-dependents
    https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#ownerreferencespermissionenforcement
    """
    return {"apiVersion": PODS.api_version, "kind": PODS.kind, "name": pod, "uid": uid}


class FarmPod(Struct, frozen=True, gc=False):
    """A FarmPod that is there, reduced: a run holds one for each.

    `owner` is the uid of the pod that alone owns it, as we set it; `owned` whether anything does, so that it goes with
    that; `sourced` whether its annotation names the pod that it is called after.
    """

    ours: bool
    terminating: bool
    pod: str
    containers: int
    owner: str
    owned: bool
    sourced: bool

    def changed_by_server(self, pod: Pod) -> tuple[Change, ...]:
        """Return in which fields it is not as this pod's should be."""
        source = f"metadata.annotations[{stamps.SOURCE}]"
        desired = f"{pod.namespace}/{pod.name}"
        fields = (
            Change("metadata.ownerReferences", self.owner or None, pod.uid),
            Change("spec.containers", str(self.containers), str(pod.containers)),
            Change("spec.pod", self.pod, pod.name),
            Change(source, desired if self.sourced else None, desired),
        )
        return tuple(each for each in fields if each.actual != each.desired)


class Manifest(Struct, frozen=True, gc=False):
    """The FarmPod of a pod, to be written. `before` is the JSON of what it replaces, in that very version, or nothing.

    What others put on that stays: labels, annotations, finalizers. The pod alone owns it, or it would outlive the pod.
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
            "ownerReferences": [_owner_reference(pod.name, pod.uid)],
        }
        spec = _Spec(pod.name, pod.containers)
        head = {"apiVersion": FARM_PODS.api_version, "kind": FARM_PODS.kind}
        return msgspec.json.encode({**head, "metadata": metadata, "spec": spec})

    def changed_by_server(self, answer: bytes) -> tuple[str, ...]:
        """Return the fields in which the server's answer differs: admission changed them."""
        kept = decode(answer, FarmPodObject).reduced
        return tuple(change.field for change in kept.changed_by_server(self.pod))

    def redact(self, text: str) -> str:
        """Return the text as it is: nothing secret was read."""
        return text
