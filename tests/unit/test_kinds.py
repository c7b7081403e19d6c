"""The table of kinds is the only place that distinguishes kinds; components and the chart have the same."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from jobs.core.sync_copies.kinds import BY_NAME, KINDS, REQUIRED_KEYS, KeySelection, Kind, select
from jobs.core.sync_copies.rules import RULE_TYPES
from jobs.kit.data.contents import Content, field_content
from jobs.kit.values import resources
from tests.canary import canary
from tests.certificates import certificate
from tests.manifests import ROOT, load
from tests.worlds import encoded

FOLDER = ROOT / "jobs" / "core" / "sync_copies"
WITH_COMPONENT = [kind for kind in KINDS.values() if kind.component]


def constants(path: Path) -> Iterator[str]:
    """Yield the texts of a module, except in the definition of RuleType."""
    for statement in ast.parse(path.read_text()).body:
        if "RuleType = " not in ast.unparse(statement):
            yield from (str(each.value) for each in ast.walk(statement) if isinstance(each, ast.Constant))


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def test_no_other_module_compares_with_a_kind_or_a_rule_type() -> None:
    of_kinds = {name for name, each in vars(resources).items() if getattr(each, "kind", None) in BY_NAME}
    others = {FOLDER / "kinds.py", FOLDER / "observe_clusters.py"}  # the inventory of clusters has Secrets
    for path in {*FOLDER.glob("*.py"), ROOT / "jobs" / "sync_copies.py"} - others:
        assert {*constants(path)} & {*KINDS, *BY_NAME} == set(), path
        assert {*imports(path)} & of_kinds == set(), path


def test_the_rule_types_are_those_of_the_table() -> None:
    assert (*KINDS,) == RULE_TYPES


@pytest.mark.parametrize("kind", WITH_COMPONENT, ids=lambda kind: kind.component)
def test_a_component_and_a_value_of_the_chart_grant_the_rights_on_a_kind(kind: Kind) -> None:
    roles = [each for path in (ROOT / kind.component_path).glob("r*.yaml") for each in load(path)]
    values = yaml.safe_load((ROOT / "charts" / "kube-chores" / "values.yaml").read_text())

    granted = {each["metadata"]["name"]: each["rules"][0]["resources"] for each in roles if "rules" in each}
    assert granted[kind.view_role] == [kind.resource.plural]
    assert granted[f"kube-chores-sync-copies-{kind.resource.plural}"] == [kind.resource.plural]
    for name in kind.helm_value.split("."):
        values = values[name]
    assert not values or not any(values.values()), "no rights by default"


@pytest.mark.parametrize(
    ("kind", "keys", "missing"),
    [
        ("kubernetes.io/tls", ["tls.key"], "tls.crt"),
        ("kubernetes.io/dockercfg", [], ".dockercfg"),
        ("kubernetes.io/dockerconfigjson", [], ".dockerconfigjson"),
        ("kubernetes.io/ssh-auth", [], "ssh-privatekey"),
        ("kubernetes.io/basic-auth", [], "username or password"),
        ("kubernetes.io/basic-auth", ["password"], ""),
        ("Opaque", [], ""),
        ("example.com/own", [], ""),
    ],
)
def test_a_copy_has_the_keys_that_the_type_of_its_secret_requires(kind: str, keys: list[str], missing: str) -> None:
    all_keys = [*(key for group in REQUIRED_KEYS.get(kind, ()) for key in group), "other"]
    content = Content(kind, dict.fromkeys(all_keys, canary()))
    chosen = KeySelection(include=("other", *keys))

    if not missing:
        assert isinstance(copied := select(chosen, content), Content)
        assert copied.data.keys() == {"other", *keys}
        return
    with pytest.raises(ValueError, match=f"^a Secret of type {kind} requires key {missing} in copies$"):
        select(chosen, content)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (
            KeySelection(rename=(("tls.key", "key.pem"),)),
            "a Secret of type kubernetes.io/tls requires key tls.key in copies",
        ),
        (KeySelection(rename=(("a", "b"), ("c", "d"))), "it has no key a, c"),
        (KeySelection(include=("ca*",)), "none of its keys matches ca*"),
        (
            KeySelection(rename=(("tls.crt", "tls.key"),)),
            "its keys tls.crt and tls.key would both be tls.key in copies",
        ),
    ],
)
def test_keys_that_a_source_cannot_be_copied_with_have_the_reason(keys: KeySelection, why: str) -> None:
    content = Content("kubernetes.io/tls", {"tls.crt": canary(), "tls.key": canary()})

    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        select(keys, content)


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
@pytest.mark.parametrize("is_immutable", [True, False])
def test_a_copy_in_another_form_is_immutable_as_its_source(kind: str, is_immutable: bool) -> None:
    content = Content("kubernetes.io/tls", {"ca.crt": encoded(certificate("root"))}, immutable=is_immutable)

    copied = select(KeySelection(("ca.crt",), copy_as=kind), content)

    assert isinstance(copied, Content)
    assert copied.immutable == is_immutable


@pytest.mark.parametrize("subjects", [["admin"], [None], "admin", 7, {"kind": "ServiceAccount"}])
@pytest.mark.parametrize("role", ["admin", ["ClusterRole"], 7])
def test_a_binding_whose_fields_have_another_shape_stays_as_it_is(subjects: object, role: object) -> None:
    """A proxy may serve it: the API server refuses to write it, and no run ends because of it."""
    kind = KINDS["rolebinding"]
    content = field_content(kind.layout, {"roleRef": role, "subjects": subjects})

    assert kind.in_target
    assert kind.in_target(content, "team") == content
    assert kind.why_no_content(content, {}) == "it refers to a Role, and Roles are not copied; refer to a ClusterRole"
    assert kind.shown_fixed(content.fixed) == "None None"
