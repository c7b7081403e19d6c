"""install-crds: apply the shipped CustomResourceDefinitions through the API, without kubectl."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import click
import msgspec

from jobs.kit.api.cluster import Cluster
from jobs.kit.api.connect import Connection
from jobs.kit.files import crd, crd_names
from jobs.kit.run import flags
from jobs.kit.run.job import Job, NoOptions
from jobs.kit.run.runner import run
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Action, Body, Change, Dependency, Finding, ObjectKey, Plan, Severity, Summary
from jobs.kit.values.reads import Download, ReadResult, decode_plain, unreadable
from jobs.kit.values.resources import CRDS, by_kind

NAME = "install-crds"


class Definition(Body, frozen=True):
    """The body of the apply of a shipped CRD. The answer is not checked: the API server sets defaults."""

    document: Mapping[str, Any]

    def encode(self) -> bytes:
        """Return the CRD as JSON."""
        return msgspec.json.encode(self.document)


@dataclass(frozen=True)
class Observed:
    """The CRDs in the cluster, by key. None: the CRD does not exist."""

    definitions: Mapping[ObjectKey, dict[str, Any] | ApiError | None] = field(default_factory=dict)

    def with_documents(
        self, documents: Mapping[Dependency, ReadResult], _downloads: Mapping[str, Download]
    ) -> Observed:
        """Return a copy that also contains `documents`."""
        read = {dependency.key: document.reduced_if_exists(decode_plain) for dependency, document in documents.items()}
        return Observed({**self.definitions, **read})


def settings(_connection: Connection, _options: NoOptions) -> None:
    """Return no settings: the CRDs are the same in every cluster."""


def observe(_cluster: Cluster, _settings: None) -> Observed:
    """Return without a list: the plan needs the CRDs one by one."""
    return Observed()


def plan(observed: Observed, _settings: None, _now: datetime) -> Plan:
    """Apply the CRDs that are missing or differ."""
    findings, dependencies, unchanged = [], [], 0
    for plural in crd_names():
        desired = crd(plural)
        key = ObjectKey(CRDS.kind, desired["metadata"]["name"])
        if key not in observed.definitions:
            dependencies.append(Dependency(key))
            continue
        actual = observed.definitions[key]
        if isinstance(actual, ApiError):
            findings.append(unreadable(key, actual))
        elif actual and _is_installed(desired, actual):
            unchanged += 1
        else:
            code = "drifted" if actual else "missing"
            findings.append(Finding(code, Severity.WARNING, key, "", Change(Action.APPLY, Definition(desired))))
    return Plan(findings, unchanged, dependencies, Summary({"definitions": len(crd_names())}))


def _is_installed(desired: Mapping[str, Any], actual: Mapping[str, Any]) -> bool:
    """Whether the CRD has all shipped values and no other schema: the API server adds no defaults to schemas."""
    schemas = [[version["schema"] for version in each["spec"]["versions"]] for each in (desired, actual)]
    return _covers(desired, actual) and schemas[0] == schemas[1]


def _covers(desired: Any, actual: Any) -> bool:
    if isinstance(desired, dict):
        return isinstance(actual, dict) and all(key in actual and _covers(desired[key], actual[key]) for key in desired)
    if isinstance(desired, list):
        same = isinstance(actual, list) and len(desired) == len(actual)
        return same and all(_covers(*pair) for pair in zip(desired, actual, strict=True))
    return bool(desired == actual)


@click.command(NAME)
@flags.run_options(NoOptions)
def command(context: click.Context, options: NoOptions) -> None:
    """Install the CustomResourceDefinitions of the jobs.

    Does the same as 'kubectl apply --server-side -k cronjobs/crds', without a copy of these files. Requires
    the verbs get and patch on customresourcedefinitions, which the jobs do not have.
    """
    job = Job(NAME, by_kind(CRDS), settings, observe, plan)
    context.exit(run(job, options))
