"""What an audit can find: the codes of findings, how bad each is, from what it comes and what to do about it.

docs/mirror-audit.md shows this table. Its order is how bad they are for who waits for images: a status tells the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jobs.kit.model import Severity


class Code(NamedTuple):
    """One code."""

    severity: Severity
    meaning: str
    remedy: str


_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO

CODES: Mapping[str, Code] = {
    "invalid": Code(_ERROR, "the RegistryMirror cannot be followed", "correct the field it names"),
    "invalid-name": Code(
        _ERROR,
        "the name is too long for the names of pods, has dots, which a Service's may not, or ends in -headless, which "
        "the name of another mirror's Service does",
        "make the RegistryMirror anew under another name",
    ),
    "unreadable": Code(
        _ERROR,
        "something could not be looked at: a right is missing, or the API server did not answer",
        "grant the right it names, or wait for the next run; nothing is called missing because of it",
    ),
    "mirror-down": Code(
        _ERROR,
        "the mirror does not answer GET /v2/ with 200",
        "read the log of the run and of its pod; see that no NetworkPolicy keeps the job from it",
    ),
    "mirror-bypassed": Code(
        _ERROR,
        "containerd on a node does not read hosts.toml, so its pulls do not use the mirror",
        "set config_path in containerd's configuration on that node and restart it; see docs/mirror-audit.md",
    ),
    "upstream-down": Code(
        _ERROR,
        "the upstream does not answer GET https://HOST/v2/ with 200 or 401",
        "read the log of the run; see that spec.upstreamUrl is the registry's own host, and that the cluster has a way "
        "out to it",
    ),
    "missing": Code(_ERROR, "a resource of the mirror is not there", "mirror-audit --repair makes it"),
    "conflict": Code(
        _ERROR,
        "an object of the name of a resource was not made for a mirror, so it is never touched",
        "rename or delete it, or rename the RegistryMirror",
    ),
    "volume-unusable": Code(
        _ERROR,
        "the registry cannot read or write its volume; nodes pull from the upstream meanwhile, or with fallback None "
        "fail to pull",
        "see whether the volume is mounted read-only, has files of another user or was deleted; mend that, then delete "
        "the pod",
    ),
    "volume-filling": Code(
        _ERROR,
        "the volume has too little free space or too few inodes for layers; nodes pull from the upstream meanwhile, or "
        "with fallback None fail to pull what is not cached",
        "raise spec.storage.size, or lower spec.ttl",
    ),
    "layers-interrupted": Code(
        _ERROR,
        "a layer ended before it was whole: the upstream or the node ended the connection, or the volume is full; "
        "nodes pull from the upstream for 2 minutes, or with fallback None try again",
        "see whether the upstream, or a proxy before it, ends connections; the finding goes by itself",
    ),
    "no-endpoints": Code(
        _ERROR,
        "no ready pod stands behind the mirror's Service",
        "see why its pod is not ready; see that the Service's selector is as it was made",
    ),
    "foreign-endpoints": Code(
        _ERROR,
        "pods that are not the registry's are behind the mirror's Service, and get some of the nodes' requests",
        "list the pods with the labels of the Service's selector, and delete those that the StatefulSet does not own",
    ),
    "credentials-missing": Code(
        _ERROR,
        "the credentials Secret is not there, or has no key username or password with a value",
        "make it in the namespace of the mirror's resources",
    ),
    "credentials-upstream-not-allowed": Code(
        _ERROR,
        "the Secret does not say that it is for this upstream: a mirror could be pointed at somebody else's password",
        "if it is, annotate the Secret with kubechores.dev/upstream: HOST",
    ),
    "credentials-image-not-allowed": Code(
        _ERROR,
        "the Secret does not name spec.image: a RegistryMirror could name an image that gives the password away",
        "if you trust the image, add it to the Secret's annotation kubechores.dev/images, or remove spec.image",
    ),
    "credentials-exposed": Code(
        _ERROR,
        "the mirror has credentials, and it asks nobody who they are: who reaches it may pull private images; its "
        "registry is not created or changed",
        "narrow who reaches it with a NetworkPolicy (there is a sample), then set spec.allowUnauthenticatedReaders",
    ),
    "duplicate-upstream": Code(
        _ERROR,
        "an older RegistryMirror has the same upstream, or the same host for nodes; nothing is created, changed or "
        "deleted for this one while the older one exists",
        "delete one of them",
    ),
    "volume-lost": Code(
        _ERROR,
        "the volume of the claim was deleted, and the cache with it; the claim cannot be bound again",
        "mirror-audit --repair deletes the registry and the claim, and recreates both, empty",
    ),
    "volume-pending": Code(
        _ERROR,
        "the claim of the cache is not bound to a volume",
        "kubectl describe it: is there a storage class, and room?",
    ),
    "not-rolled-out": Code(
        _WARNING,
        "the controller has not caught up with the workload, or pods are not up to date or not ready",
        "wait, or see what keeps its pods",
    ),
    "drifted": Code(
        _WARNING,
        "a field is not as the mirror asks for, or is one that kube-chores set once and nobody asks for now",
        "ask for it in the RegistryMirror, or mirror-audit --repair undoes it; --diff shows values",
    ),
    "cache-corrupt": Code(
        _WARNING,
        "blobs did not match their digests in the last 24 hours; they were removed, and are fetched again when needed",
        "look at the disk of the volume",
    ),
    "volume-too-small": Code(
        _WARNING,
        "the claim asks for less than spec.storage.size, or its volume has less than the claim asks for",
        "mirror-audit --repair grows the claim where its storage class allows; kubectl describe it if it does not grow",
    ),
    "volume-shrink": Code(
        _WARNING,
        "spec.storage.size is less than the claim asks for: a volume cannot shrink",
        "raise spec.storage.size again, or have mirror-audit --repair --allow-cache-loss make the claim anew, empty",
    ),
    "nodes-not-covered": Code(
        _WARNING,
        "some Linux nodes are not told of the mirror: the DaemonSet is not meant to run there",
        "remove the nodeSelector or affinity that the finding names, or else tolerate their taints in spec.tolerations",
    ),
    "image-unpinned": Code(
        _WARNING,
        "an image has no tag and no digest, or the tag latest: what runs changes by itself",
        "name a tag or, better, a digest",
    ),
    "image-depends-on-mirror": Code(
        _WARNING,
        "with fallback None nodes could pull an image of the mirror through the mirror alone, which needs it to start",
        "set spec.fallback: Upstream, or have the image in another registry",
    ),
    "never-used": Code(
        _WARNING,
        "nobody has pulled an image through the mirror yet",
        "pull an image of the host on a node; if the finding stays, see config_path in containerd's configuration",
    ),
    "terminating": Code(_WARNING, "a resource of the mirror is being deleted", "see what deletes it"),
    "orphan": Code(
        _WARNING,
        "a resource was made for a mirror that is not there, or does not ask for it any more",
        "mirror-audit --repair deletes it; the claim, and the cache with it, only with --allow-cache-loss",
    ),
    "status-failed": Code(
        _ERROR, "the status or Event of a RegistryMirror could not be written", "grant the right that it names"
    ),
    "skipped": Code(_INFO, "the RegistryMirror is being deleted", "nothing"),
    "unchanged": Code(_INFO, "a resource is as it should be", "nothing"),
}
RANK = {code: number for number, code in enumerate(CODES)}


def reason(code: str) -> str:
    """Return a code as the reason of a condition: not-rolled-out is NotRolledOut."""
    return "".join(word.capitalize() for word in code.split("-"))
