"""Rules from files: every problem at once, each with its place."""

from pathlib import Path

import pytest
import yaml

from jobs.core.sync_copies.rule_files import rules_from_files
from jobs.core.sync_copies.rules import Rule, parse_rule
from jobs.kit.values.errors import ConfigurationError
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head, Invalid
from jobs.kit.values.resources import RULES
from tests.canary import canary, leaks

GOOD = {
    "apiVersion": "kubechores.dev/v1",
    "kind": "CopyratorRule",
    "metadata": {"name": "good"},
    "spec": {"ruleType": "secret", "selector": {"matchLabels": {"copyrator": "true"}}},
}


def written(tmp_path: Path, *documents: object, name: str = "rules.yaml") -> str:
    path = tmp_path / name
    path.write_text(yaml.safe_dump_all(documents))
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
        "bad: spec.ruleType: 'secrets' is not one of ['configmap', 'secret']",
        "bad: spec.selector.matchLabels.a: 1 is not of type 'string'",
        "bad: spec: Additional properties are not allowed ('target' was unexpected)",
        "bad: spec.namespaces[0]: 'UPPER' does not match",
        "worse: spec.ruleType: 'secrets' is not one of ['configmap', 'secret']",
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
    reported = problems(written(tmp_path, {**GOOD, "spec": {**GOOD["spec"], "metadata": metadata}}))  # type: ignore[dict-item]

    assert len([problem for problem in reported if "is reserved" in problem]) == 5
    assert len([problem for problem in reported if "use at most 63 of" in problem]) == 2


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


def test_a_rule_in_the_old_format_that_is_not_valid_is_reported_too(tmp_path: Path) -> None:
    old = {"kind": "CopyratorRule", "metadata": ["x"], "ruleType": "configmap"}

    (odd,) = problems(written(tmp_path, {**old, "selector": {"copyrator": "true"}}))
    assert "(without a name): has no spec: this is the format of an older tool" in odd
    assert any(
        "'spec' is a required property" in each for each in problems(written(tmp_path, {**old, "selector": "x"}))
    )
