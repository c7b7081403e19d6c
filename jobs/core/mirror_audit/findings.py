"""The findings of an audit: their codes, each with its meaning, remedy and severity.

`make docs` writes them to docs/mirror-audit.md. Their order is the impact on users who pull images: a status reports
the first ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jobs.core.mirror_audit.registry_mirrors import RegistryMirror
from jobs.kit.values import reads
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import ExitCode, FieldDiff, Finding, ObjectKey, Severity


class Code(NamedTuple):
    """The meaning of a code and its remedy, both for a person, and its severity."""

    meaning: str
    remedy: str
    severity: Severity = Severity.CRITICAL


_WARNING, _INFO = Severity.WARNING, Severity.INFO

CODES: Mapping[str, Code] = {
    "invalid": Code("the spec is not valid", "correct the field that the finding names"),
    "invalid-name": Code(
        "the name has more than 36 characters or a dot, or ends in -headless",
        "recreate the RegistryMirror with another name",
    ),
    "unreadable": Code(
        "something could not be read or probed",
        "grant the permission that the finding names, or wait for the next run; what could not be read is not "
        "reported as missing",
    ),
    "name-not-resolved": Code(
        "the cluster's DNS does not resolve the mirror's Service",
        "check that the pods of the cluster's DNS run, and that a NetworkPolicy allows port 53",
    ),
    "mirror-down": Code(
        "the mirror does not answer GET /v2/ with 200",
        "read the logs of the run and of the mirror's pod; check that no NetworkPolicy blocks the job's requests",
    ),
    "mirror-bypassed": Code(
        "containerd on a node does not read hosts.toml",
        "set config_path in containerd's configuration on that node, then restart containerd; see "
        "docs/mirrors-on-nodes.md",
    ),
    "upstream-down": Code(
        "the upstream does not answer GET /v2/ with 200 or 401",
        "read the log of the run; check that spec.upstreamUrl is the registry's own host, and that the cluster can "
        "connect to it",
    ),
    "credentials-rejected": Code(
        "the upstream rejects the login of the registry",
        "correct the Secret, then run mirror-audit --repair, which replaces the registry's pod, or delete that pod: a "
        "registry reads the Secret when it starts",
    ),
    "rate-limited": Code(
        "the upstream answers 429 Too Many Requests",
        "wait until the limit of the upstream ends; set spec.credentialsSecret to a login with a higher limit",
    ),
    "missing": Code("a resource of the mirror does not exist", "run mirror-audit --repair, which creates it"),
    "conflict": Code(
        "an object with the name of a resource is not managed by kube-chores",
        "rename or delete it, or rename the RegistryMirror",
    ),
    "volume-unusable": Code(
        "the registry cannot read or write its volume",
        "check whether the volume is mounted read-only, has files of another user, or was deleted; fix that, then "
        "delete the pod",
    ),
    "volume-filling": Code(
        "the volume has too little free space or too few inodes", "increase spec.storage.size, or decrease spec.ttl"
    ),
    "layers-interrupted": Code(
        "a layer ended early in the last 2 minutes",
        "check whether the upstream, or a proxy before it, closes connections; the finding disappears by itself",
    ),
    "scaled-to-zero": Code(
        "somebody set spec.replicas of the registry to 0",
        "nothing, if the CronJob mirror-repair runs: it reverts this within 15 minutes; else run mirror-audit --repair",
    ),
    "no-endpoints": Code(
        "the mirror's Service has no ready endpoint",
        "find out why the mirror's pod is not ready; check that the Service's selector did not change",
    ),
    "foreign-endpoints": Code(
        "the mirror's Service selects pods that are not the registry's",
        "list the pods with the labels of the Service's selector, and delete those that the StatefulSet does not own",
    ),
    "credentials-missing": Code(
        "the Secret does not exist, or username or password has no value",
        "create the Secret, with both keys, in the namespace of the mirror's resources",
    ),
    "credentials-upstream-not-allowed": Code(
        "the Secret is not annotated for this upstream",
        "if the password is for this upstream, annotate the Secret with kubechores.dev/upstream: HOST",
    ),
    "credentials-image-not-allowed": Code(
        "the Secret does not list spec.image",
        "if you trust the image, add it to the Secret's annotation kubechores.dev/images, or remove spec.image",
    ),
    "credentials-exposed": Code(
        "every client could pull the private images of the login",
        "limit the clients with a NetworkPolicy (see the sample), then set spec.allowUnauthenticatedReaders",
    ),
    "duplicate-upstream": Code("an older RegistryMirror has the same upstream or registry host", "delete one of them"),
    "volume-lost": Code(
        "the volume was deleted, and the cache with it",
        "run mirror-audit --repair, which deletes the registry and the claim, and recreates both, empty",
    ),
    "volume-pending": Code(
        "the claim is not bound to a volume",
        "run kubectl describe on the claim; check its storage class and the free capacity",
    ),
    "in-progress": Code(
        "a repair changed it minutes ago, and it is not ready",
        "wait: if it does not become ready, the next run reports why",
        _WARNING,
    ),
    "not-rolled-out": Code(
        "pods are not up to date or not ready", "wait, or find out why its pods are not ready", _WARNING
    ),
    "drifted": Code(
        "a field differs from what the mirror defines",
        "to keep the value, set it in the RegistryMirror; to revert it, run mirror-audit --repair; see --diff",
        _WARNING,
    ),
    "cache-corrupt": Code(
        "blobs did not match their digests in the last 24 hours, and were removed",
        "check the disk of the volume",
        _WARNING,
    ),
    "volume-too-small": Code(
        "the claim or volume is smaller than spec.storage.size",
        "run mirror-audit --repair, which expands the claim if its storage class allows it; if it does not grow, see "
        "kubectl describe",
        _WARNING,
    ),
    "volume-shrink": Code(
        "the claim requests more than spec.storage.size",
        "increase spec.storage.size again, or run mirror-audit --repair --allow-cache-loss, which recreates the "
        "claim, empty",
        _WARNING,
    ),
    "nodes-not-covered": Code(
        "the DaemonSet does not run on some Linux nodes",
        "remove the nodeSelector or affinity that the finding names; if it names none, tolerate the nodes' taints in "
        "spec.tolerations",
        _WARNING,
    ),
    "image-unpinned": Code("an image has neither a digest nor a fixed tag", "set a tag or, better, a digest", _WARNING),
    "image-depends-on-mirror": Code(
        "with fallback None, nodes pull an image of the mirror only through the mirror",
        "set spec.fallback: Upstream, or use the image from another registry",
        _WARNING,
    ),
    "image-unknown": Code(
        "the image for the pods of mirrors is not known",
        "apply the CronJob, its Role and RoleBinding of cronjobs/ again, or add --node-image to the CronJob's args; "
        "outside of a pod, set --node-image",
        _WARNING,
    ),
    "never-used": Code(
        "no image was pulled through the mirror",
        "pull an image of the registry's host on a node; if the finding stays, check config_path in containerd's "
        "configuration",
        _WARNING,
    ),
    "terminating": Code("a resource of the mirror is being deleted", "find out what deletes it", _WARNING),
    "orphan": Code("no RegistryMirror defines the resource", "run mirror-audit --repair, which deletes it", _WARNING),
    "image-missing": Code(
        "no registry has an image that pods or CronJobs use, or its reference is not valid",
        "push the image again, or change it in the objects that the finding names; keep nodes that have it until then",
    ),
    "image-only-cached": Code(
        "only the cache of a mirror has the image; its registry does not",
        "push the image to its registry again, or copy it to another one, before the cache of the mirror removes it",
        _WARNING,
    ),
    "image-no-access": Code(
        "the registry refuses access to the image, without a login or with those of the pods",
        "check that the repository exists; correct the pull secret that the finding names, or add one; if nodes have a "
        "login of their own for this registry, nothing",
        _WARNING,
    ),
    "image-moved": Code(
        "the tag is of another image than pods run",
        "restart the pods to run the new image, or use its digest, so that all pods run the same image",
        _WARNING,
    ),
    "image-rate-limited": Code(
        "the registry answers 429, so some images were not checked",
        "nothing: later runs check the other images; if it stays, decrease the number of --images",
        _WARNING,
    ),
    "image-unreachable": Code(
        "the registry did not answer, or is not one, so some images were not checked",
        "check that the registry runs, and that a NetworkPolicy allows the job's requests to its port",
        _WARNING,
    ),
    "status-failed": Code("the status or an Event could not be written", "grant the permission that the finding names"),
    "skipped": Code("the RegistryMirror is being deleted", "nothing", _INFO),
    "image-not-checked": Code("an image was not checked: the reason is in the finding", "nothing", _INFO),
    "retained": Code(
        "the claim of a deleted mirror keeps its cache",
        "nothing; to delete it, run mirror-audit --repair --allow-cache-loss",
        _INFO,
    ),
    "unchanged": Code("a resource has no findings", "nothing", _INFO),
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
    code: str,
    reason: str,
    about: ObjectKey,
    mirror: RegistryMirror | None = None,
    diff: tuple[FieldDiff, ...] = (),
    exit_code: ExitCode = ExitCode.DONE,
) -> Finding:
    """Return a finding, about one mirror or about none, with the severity of its code."""
    subjects = (mirror.name,) if mirror else ()
    return Finding(code, CODES[code].severity, about, reason, diff=diff, subjects=subjects, exit_code=exit_code)


def unreadable(about: ObjectKey, error: ApiError, subjects: tuple[str, ...]) -> Finding:
    """Return the finding for an object that the API server did not return. Whether it exists is not known."""
    return reads.unreadable(about, error, reads.read_failure(error), subjects)
