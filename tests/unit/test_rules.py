"""Rules from files: every problem at once, each with its place."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from jobs.core.sync_copies.observe import rules_from_files
from jobs.core.sync_copies.rules import Keys, Rule, Spec, parse_rule
from jobs.core.sync_copies.selectors import LabelSelector
from jobs.kit.files import crd
from jobs.kit.values.errors import ConfigurationError
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head, Invalid
from jobs.kit.values.resources import RULES
from tests.bad_rules import NAMED, REFUSED
from tests.canary import canary, leaks
from tests.manifests import ROOT, load

GOOD: dict[str, Any] = {
    "apiVersion": "kubechores.dev/v1",
    "kind": "CopyratorRule",
    "metadata": {"name": "good"},
    "spec": {"ruleType": "secret", "selector": {"matchLabels": {"copyrator": "true"}}},
}

RULE_TYPES = [
    *("configmap", "secret", "networkpolicy", "limitrange", "resourcequota", "rolebinding", "serviceaccount"),
]


def written(tmp_path: Path, *documents: object, name: str = "rules.yaml") -> str:
    path = tmp_path / name
    path.write_text("\n---\n".join(map(json.dumps, documents)))  # without aliases
    return str(path)


def problems(*filenames: str, rule_name: str | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        rules_from_files(filenames, "kube-chores", rule_name)
    return list(caught.value.problems)


def test_rules_are_read_from_files_folders_and_lists_with_other_kinds(tmp_path: Path) -> None:
    second = {**GOOD, "metadata": {"name": "second"}}
    third = {**GOOD, "metadata": {"name": "third", "namespace": "kube-chores"}}
    written(tmp_path, {"apiVersion": "v1", "kind": "List", "items": [GOOD, second]}, {"kind": "ConfigMap"}, None)
    written(tmp_path, third, name="more.yml")

    rules = rules_from_files([str(tmp_path)], "kube-chores", None)

    assert [rule.name for rule in rules] == ["good", "second", "third"]
    assert all(isinstance(rule, Rule) and rule.namespace == "kube-chores" for rule in rules)


def test_all_problems_of_all_rules_are_reported_at_once(tmp_path: Path) -> None:
    bad = {
        "apiVersion": "kubechores.dev/v2",
        "kind": "CopyratorRule",
        "metadata": {"name": "bad", "namespace": "elsewhere"},
        "spec": {"ruleType": "secrets", "selector": {"matchLabels": {"a": 1}}, "target": {}, "namespaces": ["UPPER"]},
    }
    empty = {**GOOD, "metadata": {"name": "empty"}, "spec": {"ruleType": "secret", "selector": {}}}
    nameless = {**GOOD, "metadata": {}}
    worse = {**GOOD, "metadata": {"name": "worse"}, "spec": {"ruleType": "secrets", "selector": {}}}
    file = written(tmp_path, bad, empty, GOOD, nameless, worse)

    reported = problems(file)

    for expected in (
        "bad: apiVersion: must be kubechores.dev/v1, is 'kubechores.dev/v2'",
        "bad: metadata.namespace: is 'elsewhere', but copyrators are read from 'kube-chores'; use -n",
        f"bad: spec.ruleType: 'secrets' is not one of {RULE_TYPES}",
        "bad: spec.selector.matchLabels.a: 1 is not of type 'string'",
        "bad: spec: Additional properties are not allowed ('target' was unexpected)",
        "bad: spec.namespaces[0]: 'UPPER' does not match",
        f"worse: spec.ruleType: 'secrets' is not one of {RULE_TYPES}",
        "worse: spec.selector: must name at least one label",
        "empty: spec.selector: must name at least one label",
        "(without a name): metadata.name: is required",
    ):
        assert any(expected in problem for problem in reported), (expected, reported)
    assert all(problem.startswith(f"{file}[") for problem in reported)


@pytest.mark.parametrize("metadata", [{"name": "../../x"}, {"name": 5}, {"name": "x", "namespace": "a/b"}])
def test_names_in_a_file_cannot_be_paths_of_the_api(tmp_path: Path, metadata: dict[str, object]) -> None:
    assert any("is not a valid name" in each for each in problems(written(tmp_path, {**GOOD, "metadata": metadata})))


def test_reserved_and_invalid_metadata_is_refused(tmp_path: Path) -> None:
    metadata = {
        "labels": {"app.kubernetes.io/managed-by": "me", "ok": "not ok!"},
        "annotations": {"argocd.argoproj.io/sync-wave": "1"},
        "copyLabels": ["kubechores.dev/job", "bad key"],
        "copyAnnotations": ["meta.helm.sh/release-name", "kubectl.kubernetes.io/last-applied-configuration"],
    }
    reported = problems(written(tmp_path, {**GOOD, "spec": {**GOOD["spec"], "metadata": metadata}}))

    assert len([problem for problem in reported if "is reserved" in problem]) == 5
    assert len([problem for problem in reported if "use at most 63 of" in problem]) == 2


def of_spec(tmp_path: Path, spec: dict[str, Any]) -> list[str]:
    """The problems of a rule with this spec, each from its field on."""
    return [each.partition("good: ")[2] for each in problems(written(tmp_path, {**GOOD, "spec": spec}))]


# The servers report the same: tests/contract/test_custom_resources.py.
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"ruleType": "secret"}, "selector: neither selector nor names is set: set one of them"),
        ({**NAMED, "ruleType": "NetworkPolicy"}, f"ruleType: 'NetworkPolicy' is not one of {RULE_TYPES}"),
        ({**NAMED, "selector": {}}, "selector: must name at least one label that sources have: a matchLabels entry"),
        ({**NAMED, "names": ["a", "a"]}, "names[1]: 'a' is already in the list; remove it"),
        ({**NAMED, "namespaces": ["x", "x"]}, "namespaces[1]: 'x' is already in the list; remove it"),
        ({**NAMED, "names": [1]}, "names[0]: 1 is not of type 'string'"),
        ({**NAMED, "names": [f"n{each}" for each in range(101)]}, "names: "),
        ({**NAMED, "names": ["Login"]}, "names: only names of RoleBindings may have capitals, _ or colons: use lower"),
        (
            {**NAMED, "ruleType": "rolebinding", "names": ["a/b"]},
            "names[0]: 'a/b' does not match '^[A-Za-z0-9]([-A-Za-z0-9_.:]*[A-Za-z0-9])?$'",
        ),
        (
            {**NAMED, "names": [f"n{each}" for each in range(100)], "namespaces": [f"n{each}" for each in range(1000)]},
            "names: names times namespaces is more than 1000, and each is a request: set a selector, or use several",
        ),
        ({**NAMED, "keys": {}}, "keys: neither include nor rename is set: set one of them, or remove keys"),
        ({**NAMED, "keys": {"include": ["a/*"]}}, "keys.include[0]: 'a/*' does not match '^[-._a-zA-Z0-9*?]+$'"),
        ({**NAMED, "keys": {"rename": {"a": ".."}}}, "keys.rename.a: '..' does not match"),
        (
            {**NAMED, "keys": {"rename": {"*": "b"}}},
            "keys.rename: has a key that is not valid: rename FROM: TO",
        ),
        ({**NAMED, "targetName": "../b"}, "targetName: '../b' does not match"),
        (
            {**NAMED, "ruleType": "rolebinding", "subjectNamespace": "own"},
            "subjectNamespace: 'own' is not one of ['source', 'target']",
        ),
        *((spec, f"{field}: {message}") for spec, field, message in REFUSED),
    ],
)
def test_a_mistake_is_reported_once_and_as_the_server_reports_it(
    tmp_path: Path, spec: dict[str, Any], expected: str
) -> None:
    (problem,) = of_spec(tmp_path, spec)

    assert problem.startswith(f"spec.{expected}")


def test_a_rule_with_each_field_is_read(tmp_path: Path) -> None:
    logins = {**NAMED, "targetName": "pull", "keys": {"include": ["*.crt"], "rename": {"tls.key": "key.pem"}}}
    binding = {"ruleType": "rolebinding", "names": ["team:Edit"], "subjectNamespace": "target"}
    named = [{**GOOD, "metadata": {"name": name}, "spec": spec} for name, spec in (("a", logins), ("b", binding))]

    first, second = rules_from_files([written(tmp_path, *named)], "kube-chores", None)

    assert (first.spec.selector, first.spec.names, first.spec.target_name) == (None, ("login",), "pull")
    assert first.spec.keys == Keys(("*.crt",), {"tls.key": "key.pem"})
    assert (first.spec.subject_namespace, second.spec.subject_namespace) == ("source", "target")
    assert (second.spec.names, second.spec.keys) == (("team:Edit",), None)


def test_a_rule_that_only_selects_by_label_has_the_defaults_of_other_fields(tmp_path: Path) -> None:
    (rule,) = rules_from_files([written(tmp_path, GOOD)], "kube-chores", None)

    assert rule.spec == Spec("secret", LabelSelector({"copyrator": "true"}))
    assert [each.selector for each in rule.queries()] == ["copyrator=true"]


SAMPLES = [
    path for path in sorted((ROOT / "cronjobs/samples").rglob("*.yaml")) if "kind: CopyratorRule" in path.read_text()
]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_each_rule_of_the_samples_selects_a_source_of_its_file(path: Path) -> None:
    for rule in rules_from_files([str(path)], "kube-chores", None):
        sources = [
            each["metadata"]
            for each in load(path)
            if each["kind"].lower() == rule.spec.rule_type and each["metadata"]["namespace"] in rule.source_namespaces
        ]
        assert any(
            (not rule.spec.names or source["name"] in rule.spec.names)
            and rule.label_selector.matches(source.get("labels", {}))
            for source in sources
        )


def test_the_rules_in_the_docs_are_valid_and_have_each_field(tmp_path: Path) -> None:
    text = "".join((ROOT / "docs" / name).read_text() for name in ("sync-copies.md", "copyratorrule.md"))
    documents = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.S)]
    complete = [{**GOOD, **each, "metadata": {"name": f"r{number}"}} for number, each in enumerate(documents)]

    rules = rules_from_files([written(tmp_path, *complete)], "kube-chores", None)

    used = {field for document in documents for field in document["spec"]}
    assert len(rules) == len(documents)
    schema = crd("copyrators")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert used == schema["properties"]["spec"]["properties"].keys()


def test_a_problem_that_depends_on_the_rule_type_is_not_reported_without_one(tmp_path: Path) -> None:
    fields = {"names": ["Login"], "subjectNamespace": "target", "keys": {"include": ["a"], "rename": {"a": "a"}}}

    reported = of_spec(tmp_path, {**fields, "ruleType": "RoleBinding"})

    assert [each.partition(":")[0] for each in reported] == ["spec.ruleType", "spec.keys.rename"]
    assert len(of_spec(tmp_path, {**fields, "ruleType": "networkpolicy"})) == 4


@pytest.mark.parametrize("field", [{"names": ["a,b"]}, {"targetName": "../../x"}, {"namespaces": ["a/b"]}])
def test_a_name_that_would_change_a_request_is_refused_without_the_schema(field: dict[str, Any]) -> None:
    spec = msgspec.json.encode({**NAMED, "ruleType": "rolebinding", **field})

    broken = parse_rule(Head(ObjectKey(RULES.kind, "odd", "kube-chores")), spec)

    assert isinstance(broken, Invalid)
    assert "is not a valid" in broken.problems[0]


def test_a_file_that_cannot_be_read_or_parsed_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [1")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")

    reported = problems(str(tmp_path / "missing.yaml"), str(broken), str(binary))

    names = [problem.partition(":")[0].rpartition("/")[2] for problem in reported]
    assert names == ["missing.yaml", "broken.yaml", "binary.yaml"]


def test_a_missing_rule_is_an_error(tmp_path: Path) -> None:
    assert "no CopyratorRule" in problems(written(tmp_path, {"kind": "ConfigMap"}))[0]
    assert "no CopyratorRule 'other'; the rules are: good" in problems(written(tmp_path, GOOD), rule_name="other")[0]
    assert "no CopyratorRule ''; the rules are: good" in problems(written(tmp_path, GOOD), rule_name="")[0]
    assert "is in the files more than once; remove the others" in problems(written(tmp_path, GOOD, GOOD))[0]


@pytest.mark.parametrize("value", ['"{}" trailing', "*{}", "!{} x"], ids=["syntax", "alias", "tag"])
def test_a_file_that_is_not_yaml_is_reported_without_its_content(tmp_path: Path, value: str) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text(f"password: {value.format(canary())}\n")

    (problem,) = problems(str(path))

    assert problem.startswith(f"{path}: is not valid YAML at line 1, column ")
    assert not leaks(problem)


def test_a_rule_without_a_spec_is_not_valid() -> None:
    broken = parse_rule(Head(ObjectKey(RULES.kind, "odd", "kube-chores")), b"")

    assert isinstance(broken, Invalid)
    assert broken.problems == ("spec: Expected `object`, got `null`",)
