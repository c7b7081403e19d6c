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
from jobs.kit.values.model import ExitCode, FieldDiff, Finding, ObjectKey, Severity


class Code(NamedTuple):
    """The remedy of a code for a person, and its severity."""

    remedy: str
    severity: Severity = Severity.CRITICAL


_WARNING, _INFO = Severity.WARNING, Severity.INFO

CODES: Mapping[str, Code] = {
    "invalid": Code("correct the field that the finding names"),
    "invalid-name": Code("recreate the RegistryMirror with another name"),
    "unreadable": Code(
        "grant the permission that the finding names, or wait for the next run; what could not be read is not "
        "reported as missing"
    ),
    "name-not-resolved": Code("check that the pods of the cluster's DNS run, and that a NetworkPolicy allows port 53"),
    "mirror-down": Code(
        "read the logs of the run and of the mirror's pod; check that no NetworkPolicy blocks the job's requests"
    ),
    "mirror-bypassed": Code(
        "set config_path in containerd's configuration on that node, then restart containerd; see docs/mirrors-on-"
        "nodes.md"
    ),
    "upstream-down": Code(
        "read the log of the run; check that spec.upstreamUrl is the registry's own host, and that the cluster can "
        "connect to it"
    ),
    "credentials-rejected": Code(
        "correct the username and password in the Secret, then run mirror-audit --repair, which replaces the "
        "registry's pod, or delete that pod: the registry reads the Secret when it starts"
    ),
    "rate-limited": Code(
        "wait until the limit of the upstream ends; set spec.credentialsSecret to a login with a higher limit"
    ),
    "missing": Code("run mirror-audit --repair, which creates it"),
    "conflict": Code("rename or delete it, or rename the RegistryMirror"),
    "volume-unusable": Code(
        "check whether the volume is mounted read-only, has files of another user, or was deleted; fix that, then "
        "delete the pod"
    ),
    "volume-filling": Code("increase spec.storage.size, or decrease spec.ttl"),
    "layers-interrupted": Code(
        "check whether the upstream, or a proxy before it, closes connections; the finding disappears by itself"
    ),
    "scaled-to-zero": Code(
        "nothing, if the CronJob mirror-repair runs: it reverts this within 15 minutes; else run mirror-audit --repair"
    ),
    "no-endpoints": Code(
        "find out why the mirror's pod is not ready; check that the Service's selector did not change"
    ),
    "foreign-endpoints": Code(
        "list the pods with the labels of the Service's selector, and delete those that the StatefulSet does not own"
    ),
    "credentials-missing": Code("create the Secret, with both keys, in the namespace of the mirror's resources"),
    "credentials-upstream-not-allowed": Code(
        "if the password is for this upstream, annotate the Secret with kubechores.dev/upstream: HOST"
    ),
    "credentials-image-not-allowed": Code(
        "if you trust the image, add it to the Secret's annotation kubechores.dev/images, or remove spec.image"
    ),
    "credentials-exposed": Code(
        "limit the clients with a NetworkPolicy (see the sample), then set spec.allowUnauthenticatedReaders"
    ),
    "duplicate-upstream": Code("delete one of them"),
    "volume-lost": Code(
        "run mirror-audit --repair, which deletes the registry and the claim, and recreates both, empty"
    ),
    "volume-pending": Code("run kubectl describe on the claim; check its storage class and the free capacity"),
    "in-progress": Code("wait: if it does not become ready, the next run reports why", _WARNING),
    "not-rolled-out": Code("wait, or find out why its pods are not ready", _WARNING),
    "drifted": Code(
        "to keep the value, set it in the RegistryMirror; to revert it, run mirror-audit --repair; see --diff", _WARNING
    ),
    "cache-corrupt": Code("check the disk of the volume", _WARNING),
    "volume-too-small": Code(
        "run mirror-audit --repair, which expands the claim if its storage class allows it; if it does not grow, see "
        "kubectl describe",
        _WARNING,
    ),
    "volume-shrink": Code(
        "increase spec.storage.size again, or run mirror-audit --repair --allow-cache-loss, which recreates the "
        "claim, empty",
        _WARNING,
    ),
    "nodes-not-covered": Code(
        "remove the nodeSelector or affinity that the finding names; if it names none, tolerate the nodes' taints in "
        "spec.tolerations",
        _WARNING,
    ),
    "image-unpinned": Code("set a tag or, better, a digest", _WARNING),
    "image-depends-on-mirror": Code("set spec.fallback: Upstream, or use the image from another registry", _WARNING),
    "image-unknown": Code(
        "apply the CronJob, its Role and RoleBinding of cronjobs/ again, or add --node-image to the CronJob's args; "
        "outside of a pod, set --node-image",
        _WARNING,
    ),
    "never-used": Code(
        "pull an image of the registry's host on a node; if the finding stays, check config_path in containerd's "
        "configuration",
        _WARNING,
    ),
    "terminating": Code("find out what deletes it", _WARNING),
    "orphan": Code("run mirror-audit --repair, which deletes it", _WARNING),
    "status-failed": Code("grant the permission that the finding names"),
    "skipped": Code("nothing", _INFO),
    "retained": Code("nothing; to delete it, run mirror-audit --repair --allow-cache-loss", _INFO),
    "unchanged": Code("nothing", _INFO),
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
