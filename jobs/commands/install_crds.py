"""install-crds: apply the shipped CustomResourceDefinitions through the API, without kubectl."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import click
import msgspec

from jobs.kit.api.cluster import Cluster
from jobs.kit.api.connect import Connection
from jobs.kit.files.schema import crd, crd_names
from jobs.kit.run import flags
from jobs.kit.run.job import Job
from jobs.kit.run.runner import run
from jobs.kit.values.decoding import decode_plain
from jobs.kit.values.model import Action, Body, Finding, Fix, Need, ObjectKey, Plan, Severity, Summary
from jobs.kit.values.reads import Page, ReadResult
from jobs.kit.values.resources import CRDS

NAME = "install-crds"


class Definition(Body, frozen=True):
    """The body of the apply of a shipped CRD. The answer is not checked: the API server sets defaults."""

    document: Mapping[str, Any]

    def encode(self) -> bytes:
        """Return the CRD as JSON."""
        return msgspec.json.encode(self.document)


@dataclass(frozen=True)
class Observed:
    """The CRDs in the cluster, by the Need for which each was read."""

    documents: Mapping[Need, ReadResult] = field(default_factory=dict)

    def with_documents(self, documents: Mapping[Need, ReadResult], _pages: Mapping[str, Page]) -> Observed:
        """Return a copy that also contains `documents`."""
        return replace(self, documents={**self.documents, **documents})


def plan(observed: Observed, _settings: None, _now: datetime) -> Plan:
    """Read each CRD first, then apply those that are missing or differ."""
    findings, needs, unchanged = [], [], 0
    for plural in crd_names():
        definition = crd(plural)
        need = Need(ObjectKey(CRDS.kind, definition["metadata"]["name"]))
        document = observed.documents.get(need)
        if document is None:
            needs.append(need)
        elif document.error and document.error.status != 404:
            error = document.error
            findings.append(Finding("unreadable", Severity.ERROR, need.key, error.message, exit_code=error.exit_code))
        elif document.error or not _is_installed(definition, decode_plain(document.body)):
            fix = Fix(Action.APPLY, Definition(definition))
            findings.append(Finding("missing" if document.error else "drifted", Severity.WARNING, need.key, "", fix))
        else:
            unchanged += 1
    return Plan(findings, unchanged, needs, Summary({"definitions": len(crd_names())}))


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


@dataclass(frozen=True)
class Options:
    """The options of all jobs: this command has no others."""

    run: flags.RunOptions


@click.command(NAME)
@flags.run_options(Options)
def command(context: click.Context, options: Options) -> None:
    """Install the CustomResourceDefinitions of the jobs.

    Does the same as 'kubectl apply --server-side -k cronjobs/crds', without a copy of these files. Requires
    the verbs get and patch on customresourcedefinitions, which the jobs do not have.
    """
    job = Job(NAME, {CRDS.kind: CRDS}, _no_settings, _observe, plan)
    context.exit(run(job, options))


def _no_settings(_connection: Connection, _options: Options) -> None:
    return None


def _observe(_cluster: Cluster, _settings: None) -> Observed:
    return Observed()
