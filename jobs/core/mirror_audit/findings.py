"""The findings of an audit: their codes, each with its severity and remedy.

docs/mirror-audit.md has the table of the codes, with their meanings. Their order is the impact on users who pull
images: a status reports the first ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jobs.core.mirror_audit.registry_mirrors import RegistryMirror
from jobs.kit.values import reads
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Change, ExitCode, Finding, ObjectKey, Severity


class Code(NamedTuple):
    """The severity of a code, and its remedy for a person."""

    severity: Severity
    remedy: str


_CRITICAL, _WARNING, _INFO = Severity.CRITICAL, Severity.WARNING, Severity.INFO

CODES: Mapping[str, Code] = {
    "invalid": Code(_CRITICAL, "correct the field that the finding names"),
    "invalid-name": Code(_CRITICAL, "recreate the RegistryMirror with another name"),
    "unreadable": Code(
        _CRITICAL,
        "grant the permission that the finding names, or wait for the next run; what could not be read is not "
        "reported as missing",
    ),
    "name-not-resolved": Code(
        _CRITICAL,
        "check that the pods of the cluster's DNS run, and that a NetworkPolicy allows port 53",
    ),
    "mirror-down": Code(
        _CRITICAL,
        "read the logs of the run and of the mirror's pod; check that no NetworkPolicy blocks the job's requests",
    ),
    "mirror-bypassed": Code(
        _CRITICAL,
        "set config_path in containerd's configuration on that node, then restart containerd; see docs/mirrors-on-"
        "nodes.md",
    ),
    "upstream-down": Code(
        _CRITICAL,
        "read the log of the run; check that spec.upstreamUrl is the registry's own host, and that the cluster can "
        "connect to it",
    ),
    "credentials-rejected": Code(
        _CRITICAL,
        "correct the username and password in the Secret, then run mirror-audit --repair, which replaces the "
        "registry's pod, or delete that pod: the registry reads the Secret when it starts",
    ),
    "rate-limited": Code(
        _CRITICAL,
        "wait until the limit of the upstream ends; set spec.credentialsSecret to a login with a higher limit",
    ),
    "missing": Code(_CRITICAL, "run mirror-audit --repair, which creates it"),
    "conflict": Code(_CRITICAL, "rename or delete it, or rename the RegistryMirror"),
    "volume-unusable": Code(
        _CRITICAL,
        "check whether the volume is mounted read-only, has files of another user, or was deleted; fix that, then "
        "delete the pod",
    ),
    "volume-filling": Code(_CRITICAL, "increase spec.storage.size, or decrease spec.ttl"),
    "layers-interrupted": Code(
        _CRITICAL,
        "check whether the upstream, or a proxy before it, closes connections; the finding disappears by itself",
    ),
    "scaled-to-zero": Code(
        _CRITICAL,
        "nothing, if the CronJob mirror-repair runs: it reverts this within 15 minutes; else run mirror-audit --repair",
    ),
    "no-endpoints": Code(
        _CRITICAL,
        "find out why the mirror's pod is not ready; check that the Service's selector did not change",
    ),
    "foreign-endpoints": Code(
        _CRITICAL,
        "list the pods with the labels of the Service's selector, and delete those that the StatefulSet does not own",
    ),
    "credentials-missing": Code(
        _CRITICAL,
        "create the Secret, with both keys, in the namespace of the mirror's resources",
    ),
    "credentials-upstream-not-allowed": Code(
        _CRITICAL,
        "if the password is for this upstream, annotate the Secret with kubechores.dev/upstream: HOST",
    ),
    "credentials-image-not-allowed": Code(
        _CRITICAL,
        "if you trust the image, add it to the Secret's annotation kubechores.dev/images, or remove spec.image",
    ),
    "credentials-exposed": Code(
        _CRITICAL,
        "limit the clients with a NetworkPolicy (see the sample), then set spec.allowUnauthenticatedReaders",
    ),
    "duplicate-upstream": Code(_CRITICAL, "delete one of them"),
    "volume-lost": Code(
        _CRITICAL,
        "run mirror-audit --repair, which deletes the registry and the claim, and recreates both, empty",
    ),
    "volume-pending": Code(
        _CRITICAL,
        "run kubectl describe on the claim; check its storage class and the free capacity",
    ),
    "in-progress": Code(_WARNING, "wait: if it does not become ready, the next run reports why"),
    "not-rolled-out": Code(_WARNING, "wait, or find out why its pods are not ready"),
    "drifted": Code(
        _WARNING,
        "to keep the value, set it in the RegistryMirror; to revert it, run mirror-audit --repair; see --diff",
    ),
    "cache-corrupt": Code(_WARNING, "check the disk of the volume"),
    "volume-too-small": Code(
        _WARNING,
        "run mirror-audit --repair, which expands the claim if its storage class allows it; if it does not grow, see "
        "kubectl describe",
    ),
    "volume-shrink": Code(
        _WARNING,
        "increase spec.storage.size again, or run mirror-audit --repair --allow-cache-loss, which recreates the "
        "claim, empty",
    ),
    "nodes-not-covered": Code(
        _WARNING,
        "remove the nodeSelector or affinity that the finding names; if it names none, tolerate the nodes' taints in "
        "spec.tolerations",
    ),
    "image-unpinned": Code(_WARNING, "set a tag or, better, a digest"),
    "image-depends-on-mirror": Code(_WARNING, "set spec.fallback: Upstream, or use the image from another registry"),
    "image-unknown": Code(
        _WARNING,
        "apply the CronJob, its Role and RoleBinding of cronjobs/ again, or add --node-image to the CronJob's args; "
        "outside of a pod, set --node-image",
    ),
    "never-used": Code(
        _WARNING,
        "pull an image of the registry's host on a node; if the finding stays, check config_path in containerd's "
        "configuration",
    ),
    "terminating": Code(_WARNING, "find out what deletes it"),
    "orphan": Code(_WARNING, "run mirror-audit --repair, which deletes it"),
    "status-failed": Code(_CRITICAL, "grant the permission that the finding names"),
    "skipped": Code(_INFO, "nothing"),
    "retained": Code(_INFO, "nothing; to delete it, run mirror-audit --repair --allow-cache-loss"),
    "unchanged": Code(_INFO, "nothing"),
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
    return reads.unreadable(about, error, reads.read_failure(error), subjects)


def not_readable(about: ObjectKey, reason: str, subjects: tuple[str, ...], exit_code: ExitCode) -> Finding:
    """Return the finding for something that was not readable for another reason than an error of the API server."""
    return Finding("unreadable", CODES["unreadable"].severity, about, reason, subjects=subjects, exit_code=exit_code)
