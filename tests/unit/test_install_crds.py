"""The CRDs that install-crds applies: those that differ from the shipped ones."""

from datetime import datetime, timezone
from typing import Any

import pytest

from jobs.commands import install_crds
from jobs.kit.files import crd, crd_names
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.resources import CRDS

SCHEMA = crd("llamas")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def changed(**fields: Any) -> dict[str, Any]:
    shipped = crd("llamas")
    return {**shipped, "spec": {**shipped["spec"], **fields}}


def with_schema(schema: dict[str, Any]) -> dict[str, Any]:
    (version,) = crd("llamas")["spec"]["versions"]
    return changed(versions=[{**version, "schema": {"openAPIV3Schema": schema}}])


@pytest.mark.parametrize(
    ("actual", "code"),
    [
        (None, "missing"),
        (crd("llamas"), None),
        (changed(conversion={"strategy": "None"}), None),  # a default of the API server
        (changed(names={**crd("llamas")["spec"]["names"], "shortNames": ["other"]}), "drifted"),
        (with_schema({**SCHEMA, "x-kubernetes-preserve-unknown-fields": True}), "drifted"),
    ],
)
def test_a_crd_without_the_shipped_values_or_with_another_schema_is_applied(actual: Any, code: str | None) -> None:
    key = ObjectKey(CRDS.kind, crd("llamas")["metadata"]["name"])
    others = {ObjectKey(CRDS.kind, f"{each}.kubechores.dev"): crd(each) for each in crd_names()}

    made = install_crds.plan(install_crds.Observed({**others, key: actual}), None, datetime.now(timezone.utc))

    assert [(each.object, each.code) for each in made.findings] == ([(key, code)] if code else [])
