"""Hostile files for -f: each is refused with one message that names the file and the position."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from kubesandbox import Sandbox
from tests import embedded
from tests.canary import canary, leaks
from tests.fault_world import World
from tests.rates import PATHS
from tests.sweeps import examples
from tests.worlds import rule

JOBS = {"sync-copies": "CopyratorRule", "fetch-rates": "ExchangeRate", "mirror-audit": "RegistryMirror"}
LABELLED = {"matchLabels": {"a": "b"}}
NO_PROVIDERS = {f"CHORES_{name.upper().replace('-', '_')}_URL": "http://127.0.0.1:9/" for name in PATHS}
ALIAS = "is not valid YAML at line {}, column {}: aliases are not allowed; repeat the value"
DEEP = re.compile(r"is nested too deeply at line 1, column \d+")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """One cluster for all tests: a run with -f writes nothing."""
    with Sandbox(of=embedded.installed()) as running:
        yield running


def refused(sandbox: Sandbox, *arguments: str, job: str = "sync-copies") -> list[str]:
    """The problems of a run that was refused."""
    ran = World(sandbox, job, NO_PROVIDERS).run(*arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "Traceback" not in ran.stderr
    first, *others = ran.stderr.partition("error: ")[2].splitlines()
    return [each.strip() for each in others] if re.fullmatch(r"\d+ problems:", first) else [first]


def written(folder: Path, text: str | bytes, name: str = "rules.yaml") -> str:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def document(job: str, spec: object) -> str:
    """The custom resource of a job, with the name x."""
    content = {"apiVersion": "kubechores.dev/v1", "kind": JOBS[job], "metadata": {"name": "x"}, "spec": spec}
    return yaml.safe_dump(content, width=1 << 30)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &a [x]\nb: [*a, *a]\n", ALIAS.format(2, 5)),
        ("a: &a {x: 1}\nb: {<<: *a}\n", ALIAS.format(2, 9)),
        ("&a [*a]", ALIAS.format(1, 5)),
        ("[" * 3000 + "]" * 3000, DEEP),
        ('{"a":' * 3000 + "1" + "}" * 3000, DEEP),
        ("- " * 3000 + "x", DEEP),
        ("? " * 3000 + "x", DEEP),
        ("a: " + "9" * 5000, "is not valid YAML at line 1, column 4: the int is not valid in JSON"),
        ("a: 0x" + "f" * 5000, "is not valid YAML at line 1, column 4: the int is not valid in JSON"),
        ("a: 1.0e+999", "is not valid YAML at line 1, column 4: the float is not valid in JSON"),
        ("a: .nan", "is not valid YAML at line 1, column 4: the float is not valid in JSON"),
        ('a: "\\ud800"', "is not valid YAML at line 1, column 4: the str is not valid in JSON"),
        ('a: "\\Uffffffff"', "is not valid YAML at line 1, column 7"),
        ("a: !!bool x", "is not valid YAML at line 1, column 4: the bool is not valid in JSON"),
        ("a: !!int ''", "is not valid YAML at line 1, column 4: the int is not valid in JSON"),
        ("a: !!python/object/apply:os.abort []", "is not valid YAML at line 1, column 4: unknown tag"),
        ("b: 1\na: \0", "is not valid YAML at line 2: a control character must be escaped"),
        ("a: \x1b[2J", "is not valid YAML at line 1: a control character must be escaped"),
        ("{null: 1}", "is not valid YAML at line 1, column 2: a key must be a string"),
        ("{[a]: 1}", "is not valid YAML at line 1, column 2: a key must be a string"),
        ("%YAML " + "9" * 5000 + ".1\n--- 1", "is not valid YAML at line 1, column 7"),
        ("a: 1\n" + "key" * 99 + ": 1\na: 2", "is not valid YAML at line 3, column 1: key 'a' is already set"),
        ("{true: 1, yes: 2}", "is not valid YAML at line 1, column 11: key 'true' is already set"),
        (b"a: \xff", "cannot be read: it is not valid UTF-8 at byte 3"),
        (b"x" * (4 << 20), "cannot be read: it is larger than 3 MiB; split it"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_hostile_file_is_refused_with_its_place(
    sandbox: Sandbox, tmp_path: Path, job: str, text: str | bytes, problem: str | re.Pattern[str]
) -> None:
    file = written(tmp_path, text)

    (refusal,) = refused(sandbox, "-f", file, job=job)

    shown = refusal.removeprefix(f"{file}: ")
    assert problem.fullmatch(shown) if isinstance(problem, re.Pattern) else shown == problem


def test_all_problems_of_all_files_are_reported_at_once(sandbox: Sandbox, tmp_path: Path) -> None:
    twice = "kind: CopyratorRule\nmetadata: {name: twice}\nspec: {ruleType: secret, selector: {}}\n"
    written(tmp_path, f"{twice}---\n[", "a.yaml")
    written(tmp_path, twice.replace("ruleType: secret", "ruleType: pod, ruleType: secret"), "b.yaml")
    (tmp_path / "c.yaml").mkdir()
    os.mkfifo(tmp_path / "d.yaml")

    problems = refused(sandbox, "-f", str(tmp_path), "-f", "/dev/zero", "-f", str(tmp_path / "missing"))

    assert [each.replace(f"{tmp_path}/", "") for each in problems] == [
        "a.yaml: is not valid YAML at line 5, column 2: expected the node content, but found '<stream end>'",
        "b.yaml: is not valid YAML at line 3, column 23: key 'ruleType' is already set",
        "c.yaml: cannot be read: Is a directory",
        "d.yaml: cannot be read: it is not a regular file; use '-f -' to read what another command writes",
        "/dev/zero: cannot be read: it is not a regular file; use '-f -' to read what another command writes",
        "missing: cannot be read: No such file or directory",
        *(f"a.yaml: CopyratorRule twice: {problem}" for problem in _OF_TWICE),
    ]


_OF_TWICE = (
    "apiVersion: must be kubechores.dev/v1, is None",
    "spec.selector: must name at least one label that sources have: a matchLabels entry, "
    "or an expression with operator In or Exists",
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [("2026-01-01", "'2026-01-01' is not one of"), ("1:30", "'1:30' is not one of"), ("yes", "True is not of type")],
)
def test_a_value_is_read_as_kubectl_reads_it(sandbox: Sandbox, tmp_path: Path, text: str, problem: str) -> None:
    good = rule("odd", "home", "*")
    del good["spec"]["ruleType"]
    file = written(tmp_path, yaml.safe_dump(good).replace("spec:", f"spec:\n  ruleType: {text}"))

    assert any(f"CopyratorRule odd: spec.ruleType: {problem}" in each for each in refused(sandbox, "-f", file))


@pytest.mark.parametrize(
    ("job", "spec"),
    [
        ("sync-copies", {"ruleType": "x" * 100_000, "selector": {}}),
        ("sync-copies", {"ruleType": "secret", "selector": {"matchLabels": {"k" * 100_000: 1}}}),
        ("sync-copies", {"ruleType": "secret", "selector": {}, "metadata": {"labels": {"k" * 100_000: "v"}}}),
        ("fetch-rates", {"currency": ["USD"] * 5000}),
        ("mirror-audit", {"upstreamUrl": "https://" + "a" * 100_000}),
    ],
    ids=["value", "key", "key beyond the schema", "list", "url"],
)
def test_a_problem_quotes_a_long_value_cut(sandbox: Sandbox, tmp_path: Path, job: str, spec: object) -> None:
    problems = refused(sandbox, "-f", written(tmp_path, document(job, spec)), job=job)

    assert all(f"{JOBS[job]} x: spec" in each for each in problems)
    assert max(len(each) - len(str(tmp_path)) for each in problems) < 400


def test_a_problem_shows_no_control_characters(sandbox: Sandbox, tmp_path: Path) -> None:
    text = 'kind: CopyratorRule\nmetadata: {name: "x\\e[2J\\n"}\nspec: {"\\e[2J": {"\\e]0;": 1}}\n'

    problems = "\n".join(refused(sandbox, "-f", written(tmp_path, text)))

    assert "CopyratorRule x\\x1b[2J\\n: metadata.name: 'x\\x1b[2J\\n' is not a valid name" in problems
    assert "\x1b" not in problems


@pytest.mark.parametrize(
    ("job", "field", "spec"),
    [
        ("sync-copies", "namespaces[0]", {"ruleType": "secret", "selector": LABELLED, "namespaces": ["home\n"]}),
        ("fetch-rates", "configMapName", {"currency": "USD", "configMapName": "usd\n"}),
        ("mirror-audit", "ttl", {"upstreamUrl": "quay.io", "ttl": "1h\n"}),
    ],
)
def test_a_pattern_matches_to_the_end_of_the_value(
    sandbox: Sandbox, tmp_path: Path, job: str, field: str, spec: object
) -> None:
    (problems,) = refused(sandbox, "-f", written(tmp_path, document(job, spec)), job=job)

    assert f"{JOBS[job]} x: spec.{field}: " in problems
    assert "\\n' does not match '^" in problems


def test_of_many_problems_the_first_are_reported(sandbox: Sandbox, tmp_path: Path) -> None:
    labels = {f"k{number}": number for number in range(5000)}
    one = {"kind": "CopyratorRule", "metadata": {"name": "x"}, "spec": {"selector": {"matchLabels": labels}}}
    many = "---\n".join(["kind: CopyratorRule\n"] * 2000)

    of_one = refused(sandbox, "-f", written(tmp_path, yaml.safe_dump(one)))
    of_many = refused(sandbox, "-f", written(tmp_path, many))

    assert (len(of_one), len(of_many)) == (101, 1001)
    assert of_one[-1].endswith("CopyratorRule x: there are more problems")
    assert of_many[-1] == "there are more problems"


@pytest.mark.parametrize("data", [b"a: \xff", b"#" * (4 << 20), b"[" * 3000], ids=["bytes", "size", "depth"])
def test_standard_input_has_the_same_limits(sandbox: Sandbox, data: bytes) -> None:
    ran = World(sandbox, "sync-copies").run("-f", "-", input=data)

    assert ran.exit_code == 2
    assert ran.stderr.startswith("error: standard input: ")


def test_a_tag_that_a_value_begins_with_is_not_shown(sandbox: Sandbox, tmp_path: Path) -> None:
    (problems,) = refused(sandbox, "-f", written(tmp_path, f"password: !{canary()}!more x"))

    assert problems.endswith("is not valid YAML at line 1, column 11: found undefined")
    assert not leaks(problems)


def test_legal_yaml_with_a_list_anchors_and_json_is_read(sandbox: Sandbox, tmp_path: Path) -> None:
    text = """
kind: List
items:
- &base
  apiVersion: kubechores.dev/v1
  kind: CopyratorRule
  metadata: {name: first}
  spec: {ruleType: configmap, selector: {matchLabels: {copyrator: "true"}}}
- apiVersion: kubechores.dev/v1
  kind: CopyratorRule
  metadata: {name: second}
  spec:
    ruleType: secret
    selector: {matchLabels: {copyrator: "true"}}
    metadata: {annotations: {since: 2026-01-01, 1: a, on: "\\ud83d\\ude00"}}
"""
    ran = World(sandbox, "sync-copies").run("-f", written(tmp_path, text))
    assert (ran.exit_code, ran.report["facts"]["rules"]) == (0, 2), ran
    as_json = '{"apiVersion":"kubechores.dev/v1","kind":"ExchangeRate","metadata":{"name":"\\u0075sd"},"spec":null}'
    (problems,) = refused(sandbox, "-f", written(tmp_path, as_json, "rates.json"), job="fetch-rates")
    assert problems.endswith("ExchangeRate usd: spec: None is not of type 'object'")


PARTS = (
    *("[", "]", "{", "}", ": ", ", ", "\n", "\n  ", "- ", "? ", "&a ", "*a", "<<: ", "'", '"', "\\", "#", "|\n "),
    *("!!int ", "!!set ", "!!omap ", "!!binary ", "!!float ", "!!null ", "!!bool ", "!!timestamp ", "!!str "),
    *("!!map ", "!x ", ">-\n ", "---\n", "1", ":30", "0x", "1.0e+999", ".inf", "2026-01-01", "a", "=", "~", "yes"),
    *("\t", "\u2028", "\ufeff", "é", '"\\ud800"'),
    *("%YAML 1.1\n", "kind: CopyratorRule\n", "spec: ", "metadata: ", "ruleType: ", "selector: ", "namespaces: "),
)


@examples(200, suppress_health_check=list(HealthCheck))
@given(parts=st.lists(st.sampled_from(PARTS), max_size=25))
def test_any_text_is_read_or_refused(sandbox: Sandbox, parts: list[str]) -> None:
    ran = World(sandbox, "sync-copies").run("-f", "-", input="".join(["kind: CopyratorRule\n", *parts]).encode())

    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: ")
