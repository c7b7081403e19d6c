"""A step of a repair, and the state of one mirror that its steps depend on. Pure."""

from __future__ import annotations

from typing import NamedTuple

from jobs.core.mirror_audit.actual.objects import Object, is_terminating, rollout_problem, status_of
from jobs.core.mirror_audit.checks.drift import resource_drift
from jobs.core.mirror_audit.checks.probes import is_upstream_unknown
from jobs.core.mirror_audit.desired.mirror import Mirror
from jobs.core.mirror_audit.observed import Observed, Settings
from jobs.kit.values.model import ExitCode, Finding, Fix, Need, ObjectKey
from jobs.kit.values.resources import ENDPOINT_SLICES, STATEFUL_SETS

_CREDENTIALS = (
    "credentials-missing",
    "credentials-upstream-not-allowed",
    "credentials-image-not-allowed",
    "unreadable",
)


class Step(NamedTuple):
    """The next step for a resource: a write (`fix`), or the condition for it (`remedy`).

    `need` is an object to read first. `may_progress` is whether a later observation in the same run may allow the next
    step. `first` is a write to another object before this one.
    """

    fix: Fix | None = None
    remedy: str = ""
    need: Need | None = None
    may_progress: bool = False
    first: Finding | None = None
    exit_code: ExitCode = ExitCode.DONE


class Context(NamedTuple):
    """One mirror, with its findings."""

    mirror: Mirror
    findings: list[Finding]
    observed: Observed
    settings: Settings

    @property
    def codes(self) -> frozenset[str]:
        """The codes of its findings."""
        return frozenset(each.code for each in self.findings)

    @property
    def claim(self) -> Object | None:
        """Its claim, as actual() returns it."""
        return self.actual(self.mirror.claim.key)

    @property
    def registry(self) -> Object | None:
        """Its StatefulSet, as actual() returns it."""
        return self.actual(self.mirror.stateful_set.key)

    def actual(self, key: ObjectKey) -> Object | None:
        """Return the object of this name, if kube-chores manages it and it is not being deleted."""
        found = self.observed.managed(key)
        return found if found and not is_terminating(found) else None

    def is_ready(self) -> bool:
        """Return whether the registry serves nodes."""
        registry = self.registry
        if not registry or rollout_problem(STATEFUL_SETS.kind, registry):
            return False
        if not status_of(registry).get("readyReplicas"):
            return False
        endpoints = self.observed.endpoints_of(self.mirror.service.key)
        return ENDPOINT_SLICES.kind in self.observed.list_errors or bool(endpoints.own)

    def is_current_and_ready(self) -> bool:
        """Return whether the registry serves nodes, with its desired configuration."""
        registry = self.registry
        return bool(registry) and not resource_drift(self.mirror.stateful_set, registry or {}) and self.is_ready()

    def credentials_blocker(self) -> str:
        """Return why no registry may start with the credentials, or an empty string."""
        secret = self.mirror.secret
        if any(each.object == secret and each.code in _CREDENTIALS for each in self.findings):
            return f"a repair continues when {secret} is usable"
        if "credentials-exposed" in self.codes:
            when = "spec.allowUnauthenticatedReaders is true"
            return f"a repair continues when {when}: every client then pulls private images"
        return ""

    def roll_blocker(self) -> str:
        """Return why the registry must not restart now, or an empty string: it does not start without its upstream."""
        return self.credentials_blocker() or self._upstream_blocker()

    def _upstream_blocker(self) -> str:
        is_unknown = is_upstream_unknown(self.mirror, self.observed)
        if not (is_unknown or "upstream-down" in self.codes) or not self.is_ready():
            return ""
        when = "a probe shows that the upstream responds" if is_unknown else "the upstream responds"
        why = "a registry does not start without its upstream, but the running one serves its cache"
        return f"a repair continues when {when}: {why}"
