"""The findings of an audit: their codes, each with its severity, meaning and remedy.

docs/mirror-audit.md has the table of the codes. Their order is the impact on users who pull images: a status reports
the first ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jobs.core.mirror_audit.registry_mirrors import RegistryMirror
from jobs.kit.values import findings
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Change, ExitCode, Finding, ObjectKey, Severity


class Code(NamedTuple):
    """The severity of a code, its meaning, and its remedy for a person."""

    severity: Severity
    meaning: str
    remedy: str


_CRITICAL, _WARNING, _INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO

CODES: Mapping[str, Code] = {
    "invalid": Code(_CRITICAL, "the RegistryMirror is not valid", "correct the field that the finding names"),
    "invalid-name": Code(
        _CRITICAL,
        "the name is too long for the names of pods, contains dots, which are not valid in the name of a Service, or "
        "ends in -headless, like the Service of another mirror",
        "recreate the RegistryMirror with another name",
    ),
    "unreadable": Code(
        _CRITICAL,
        "something could not be read: a permission is missing, or the API server did not respond",
        "grant the permission that the finding names, or wait for the next run; what could not be read is not "
        "reported as missing",
    ),
    "name-not-resolved": Code(
        _CRITICAL,
        "the run could not resolve the name of the mirror's Service, so it probed neither the mirror nor its upstream; "
        "registries cannot resolve their upstreams either, and nodes use the mirror by its address",
        "check that the pods of the cluster's DNS run, and that a NetworkPolicy allows port 53",
    ),
    "mirror-down": Code(
        _CRITICAL,
        "the mirror does not respond to GET /v2/ with 200",
        "read the logs of the run and of the mirror's pod; check that no NetworkPolicy blocks the job's requests",
    ),
    "mirror-bypassed": Code(
        _CRITICAL,
        "containerd on a node does not read hosts.toml, so its pulls do not use the mirror",
        "set config_path in containerd's configuration on that node, then restart containerd; see "
        "docs/mirrors-on-nodes.md",
    ),
    "upstream-down": Code(
        _CRITICAL,
        "the upstream does not respond to GET https://HOST/v2/ with 200 or 401",
        "read the log of the run; check that spec.upstreamUrl is the registry's own host, and that the cluster can "
        "connect to it",
    ),
    "credentials-rejected": Code(
        _CRITICAL,
        "the upstream rejects the login in the credentials Secret, so the mirror serves only images that it has; nodes "
        "pull others from the upstream, or fail to pull with fallback None",
        "correct the username and password in the Secret, then run mirror-audit --repair, which replaces the "
        "registry's pod, or delete that pod: the registry reads the Secret when it starts",
    ),
    "rate-limited": Code(
        _CRITICAL,
        "the upstream limits the requests of the registry, so the mirror serves only images that it has; nodes pull "
        "others from the upstream, or fail to pull with fallback None",
        "wait until the limit of the upstream ends; set spec.credentialsSecret to a login with a higher limit",
    ),
    "missing": Code(
        _CRITICAL, "a resource of the mirror does not exist", "run mirror-audit --repair, which creates it"
    ),
    "conflict": Code(
        _CRITICAL,
        "an object with the name of a resource is not managed by kube-chores, so it is left untouched",
        "rename or delete it, or rename the RegistryMirror",
    ),
    "volume-unusable": Code(
        _CRITICAL,
        "the registry cannot read or write its volume; meanwhile nodes pull from the upstream, or fail to pull with "
        "fallback None",
        "check whether the volume is mounted read-only, has files of another user, or was deleted; fix that, then "
        "delete the pod",
    ),
    "volume-filling": Code(
        _CRITICAL,
        "the volume has too little free space or too few inodes for layers; meanwhile nodes pull from the upstream, or "
        "with fallback None fail to pull what is not cached",
        "increase spec.storage.size, or decrease spec.ttl",
    ),
    "layers-interrupted": Code(
        _CRITICAL,
        "a layer is incomplete: the upstream or the node closed the connection, or the volume is full; nodes pull from "
        "the upstream for 2 minutes, or with fallback None try again",
        "check whether the upstream, or a proxy before it, closes connections; the finding disappears by itself",
    ),
    "scaled-to-zero": Code(
        _CRITICAL,
        "somebody set spec.replicas of the registry to 0, so the mirror serves no images",
        "nothing, if the CronJob mirror-repair runs: it reverts this within 15 minutes; else run mirror-audit --repair",
    ),
    "no-endpoints": Code(
        _CRITICAL,
        "the mirror's Service has no ready endpoint",
        "find out why the mirror's pod is not ready; check that the Service's selector did not change",
    ),
    "foreign-endpoints": Code(
        _CRITICAL,
        "the mirror's Service selects pods that are not the registry's, and they get some of the nodes' requests",
        "list the pods with the labels of the Service's selector, and delete those that the StatefulSet does not own",
    ),
    "credentials-missing": Code(
        _CRITICAL,
        "the credentials Secret does not exist, or its key username or password has no value",
        "create the Secret, with both keys, in the namespace of the mirror's resources",
    ),
    "credentials-upstream-not-allowed": Code(
        _CRITICAL,
        "the Secret is not annotated for this upstream; without this rule, a RegistryMirror could send any password to "
        "any host",
        "if the password is for this upstream, annotate the Secret with kubechores.dev/upstream: HOST",
    ),
    "credentials-image-not-allowed": Code(
        _CRITICAL,
        "the Secret does not list spec.image; without this rule, a RegistryMirror could run an image that discloses "
        "the password",
        "if you trust the image, add it to the Secret's annotation kubechores.dev/images, or remove spec.image",
    ),
    "credentials-exposed": Code(
        _CRITICAL,
        "the mirror has credentials and does not authenticate its clients: every client that reaches it can pull "
        "private images; a repair does not create or change its registry",
        "limit the clients with a NetworkPolicy (see the sample), then set spec.allowUnauthenticatedReaders",
    ),
    "duplicate-upstream": Code(
        _CRITICAL,
        "an older RegistryMirror has the same upstream, or the same host for nodes; nothing is created, changed or "
        "deleted for this one while the older one exists",
        "delete one of them",
    ),
    "volume-lost": Code(
        _CRITICAL,
        "the volume of the claim was deleted, and the cache with it; the claim cannot be bound again",
        "run mirror-audit --repair, which deletes the registry and the claim, and recreates both, empty",
    ),
    "volume-pending": Code(
        _CRITICAL,
        "the claim of the cache is not bound to a volume",
        "run kubectl describe on the claim; check its storage class and the free capacity",
    ),
    "in-progress": Code(
        _WARNING,
        "a repair changed it less than 5 minutes ago, and it is not ready yet",
        "wait: if it does not become ready, the next run reports why",
    ),
    "not-rolled-out": Code(
        _WARNING,
        "the controller has not observed the latest change, or pods are not up to date or not ready",
        "wait, or find out why its pods are not ready",
    ),
    "drifted": Code(
        _WARNING,
        "a field differs from what the mirror defines, or kube-chores set it once and no longer sets it",
        "to keep the value, set it in the RegistryMirror; to revert it, run mirror-audit --repair; see --diff",
    ),
    "cache-corrupt": Code(
        _WARNING,
        "blobs did not match their digests in the last 24 hours; they were removed, and are fetched again when needed",
        "check the disk of the volume",
    ),
    "volume-too-small": Code(
        _WARNING,
        "the claim requests less than spec.storage.size, or its volume has less capacity than the claim requests",
        "run mirror-audit --repair, which expands the claim if its storage class allows it; if it does not grow, see "
        "kubectl describe",
    ),
    "volume-shrink": Code(
        _WARNING,
        "spec.storage.size is less than the claim requests: a volume cannot shrink",
        "increase spec.storage.size again, or run mirror-audit --repair --allow-cache-loss, which recreates the claim, "
        "empty",
    ),
    "nodes-not-covered": Code(
        _WARNING,
        "some Linux nodes do not use the mirror: the DaemonSet is not scheduled there",
        "remove the nodeSelector or affinity that the finding names; if it names none, tolerate the nodes' taints in "
        "spec.tolerations",
    ),
    "image-unpinned": Code(
        _WARNING,
        "an image has no tag and no digest, or the tag latest: its content changes without a change of the spec",
        "set a tag or, better, a digest",
    ),
    "image-depends-on-mirror": Code(
        _WARNING,
        "with fallback None, nodes pull an image of the mirror's pods only through the mirror, which does not start "
        "without it",
        "set spec.fallback: Upstream, or use the image from another registry",
    ),
    "image-unknown": Code(
        _WARNING,
        "a run in a pod could not read the image of that pod, so the mirrors keep the image that they have; or a "
        "repair outside of a pod creates mirrors, whose image nodes may not have",
        "apply the CronJob, its Role and RoleBinding of cronjobs/ again, or add --node-image to the CronJob's args; "
        "outside of a pod, set --node-image",
    ),
    "never-used": Code(
        _WARNING,
        "no image was pulled through the mirror yet",
        "pull an image of the registry's host on a node; if the finding stays, check config_path in containerd's "
        "configuration",
    ),
    "terminating": Code(_WARNING, "a resource of the mirror is being deleted", "find out what deletes it"),
    "orphan": Code(
        _WARNING,
        "the mirror of a resource does not exist, or no longer defines it",
        "run mirror-audit --repair, which deletes it",
    ),
    "status-failed": Code(
        _CRITICAL,
        "the status or Event of a RegistryMirror could not be written",
        "grant the permission that the finding names",
    ),
    "skipped": Code(_INFO, "the RegistryMirror is being deleted", "nothing"),
    "retained": Code(
        _INFO,
        "the mirror of a claim does not exist; the claim is kept with its cache for a later mirror of this name",
        "nothing; to delete it, run mirror-audit --repair --allow-cache-loss",
    ),
    "unchanged": Code(_INFO, "a resource has no findings", "nothing"),
}
RANK = {code: number for number, code in enumerate(CODES)}


def reason(code: str) -> str:
    """Return the condition reason of a code, such as NotRolledOut for not-rolled-out."""
    return "".join(word.capitalize() for word in code.split("-"))


class Problem(NamedTuple):
    """What is wrong with an object."""

    code: str
    reason: str


def finding(
    code: str, reason: str, about: ObjectKey, mirror: RegistryMirror, changes: tuple[Change, ...] = ()
) -> Finding:
    """Return a finding about one mirror, with the severity of its code."""
    return Finding(code, CODES[code].severity, about, reason, changes=changes, subjects=(mirror.name,))


def unreadable(about: ObjectKey, error: ApiError, subjects: tuple[str, ...]) -> Finding:
    """Return the finding for an object that the API server did not return. Whether it exists is not known."""
    return findings.unreadable(about, error, findings.read_failure(error), subjects)


def not_readable(about: ObjectKey, reason: str, subjects: tuple[str, ...], exit_code: ExitCode) -> Finding:
    """Return the finding for something that was not readable for another reason than an error of the API server."""
    return Finding("unreadable", CODES["unreadable"].severity, about, reason, subjects=subjects, exit_code=exit_code)
