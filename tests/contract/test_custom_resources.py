"""CopyratorRules with the shipped CRD: validation, status, ownership, and the lifecycle of the CRD."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.bad_rules import NAMED, REFUSED
from tests.contract.conftest import APPLY, MERGE, TABLE, Answer, Place, bad_request, unprocessable, until
from tests.manifests import ROOT

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD: dict[str, Any] = yaml.safe_load((ROOT / "cronjobs/crds/copyrators.yaml").read_text())
GOOD: dict[str, Any] = {"ruleType": "secret", "selector": {"matchLabels": {"a": "b"}}}
RULE_TYPES = '"configmap", "secret", "networkpolicy", "limitrange", "resourcequota", "rolebinding", "serviceaccount"'
NAME_PATTERN = "'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'"
NOT_READ = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["default"]
CONDITION = {
    "type": "Ready",
    "status": "True",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
    "reason": "Copied",
    "message": "all is well",
    "observedGeneration": 1,
}


def invalid(field: str, why: str) -> tuple[str, str, str]:
    return field, "FieldValueInvalid", f"Invalid value: {why}"


REQUIRED = ("FieldValueRequired", "Required value")
UNCHECKED = invalid(
    "<nil>",
    "null: some validation rules were not checked because the object was invalid; correct the existing errors to "
    "complete validation",
)
SELECTOR = invalid(
    "spec.selector",
    "must name at least one label that sources have: a matchLabels entry, or an expression with operator In or Exists",
)
EXPRESSION = invalid("spec.selector.matchExpressions[0]", "In and NotIn need values, Exists and DoesNotExist take none")


def rule(spec: Any, name: str = "a", **more: Any) -> dict[str, Any]:
    head = {"apiVersion": "kubechores.dev/v1", "kind": "CopyratorRule", "metadata": {"name": name}}
    return {**head, "spec": spec, **more}


@pytest.fixture
def rules(place: Place) -> Place:
    """A namespace where the CRD is served."""
    place.api.put(CRD)
    return place


def path(place: Place, name: str = "") -> str:
    return place.path("copyrators", name, "kubechores.dev/v1")


def create(place: Place, spec: Any = GOOD, **more: Any) -> Answer:
    return place.send("POST", path(place) + "?fieldManager=author", rule(spec, **more))


def wrong_type(field: str, expected: str, actual: str) -> tuple[str, str, str]:
    text = f'Invalid value: "{actual}": {field} in body must be of type {expected}: "{actual}"'
    return field, "FieldValueTypeInvalid", text


def unsupported(field: str, value: str, supported: str) -> tuple[str, str, str]:
    return field, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {supported}'


def too_many(field: str, number: int, most: int) -> tuple[str, str, str]:
    return field, "FieldValueTooMany", f"Too many: {number}: must have at most {most} items"


def not_matched(field: str, value: str, pattern: str) -> tuple[str, str, str]:
    return invalid(field, f"\"{value}\": {field} in body should match '{pattern}'")


def too_few(field: str, what: str) -> tuple[str, str, str]:
    return invalid(field, f"0: {field} in body should have at least 1 {what}")


def too_short(field: str) -> tuple[str, str, str]:
    return invalid(field, f'"": {field} in body should be at least 1 chars long')


def numbered(number: int) -> list[str]:
    return [f"n{each}" for each in range(number)]


NAME_OF_SOURCE = "^[A-Za-z0-9]([-A-Za-z0-9_.:]*[A-Za-z0-9])?$"
SUBDOMAIN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
GLOB_OF_KEYS = "^[-._a-zA-Z0-9*?]+$"
KEY = "^[.]?[-_a-zA-Z0-9][-._a-zA-Z0-9]*$"
NO_SOURCES = "neither selector nor names is set: set one of them"
CAPITALS = "only names of RoleBindings may have capitals, _ or colons: use lower case letters, digits, - and ."
TOO_MANY_REQUESTS = (
    "names times namespaces is more than 1000, and each is a request: set a selector, or use several rules"
)
EMPTY_KEYS = "neither include nor rename is set: set one of them, or remove keys"
BAD_KEY = "has a key that is not valid: rename FROM: TO, without globs, both of A-Z a-z 0-9 - _ ."
TOO_LONG = ("spec.namespaces[0]", "FieldValueTooLong", "Too long: may not be more than 63 bytes")
BAD_SPECS: list[tuple[Any, set[tuple[str, str, str]]]] = [
    (
        {"ruleType": "NetworkPolicy", "names": ["a"]},
        {unsupported("spec.ruleType", "NetworkPolicy", RULE_TYPES), UNCHECKED},
    ),
    ({"names": ["a"]}, {("spec.ruleType", *REQUIRED), UNCHECKED}),
    (None, {("spec", *REQUIRED), UNCHECKED}),
    ({**GOOD, "selector": {}}, {SELECTOR}),
    ({**GOOD, "selector": {"matchLabels": {}}}, {SELECTOR}),
    ({**GOOD, "selector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["x"]}]}}, {SELECTOR}),
    ({**GOOD, "selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, {EXPRESSION}),
    ({**GOOD, "selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}}, {EXPRESSION}),
    ({**GOOD, "selector": []}, {wrong_type("spec.selector", "object", "array"), UNCHECKED}),
    ({**GOOD, "selector": {"matchLabels": {"a": None}}}, {SELECTOR}),
    (
        {**GOOD, "selector": {"matchLabels": {"a": 1}}},
        {wrong_type("spec.selector.matchLabels.a", "string", "integer"), UNCHECKED},
    ),
    (
        {**GOOD, "namespaces": []},
        {invalid("spec.namespaces", "0: spec.namespaces in body should have at least 1 items")},
    ),
    ({**GOOD, "namespaces": ["a", "a"]}, {("spec.namespaces[1]", "FieldValueDuplicate", 'Duplicate value: "a"')}),
    (
        {**GOOD, "namespaces": ["A"]},
        {invalid("spec.namespaces[0]", f'"A": spec.namespaces[0] in body should match {NAME_PATTERN}')},
    ),
    ({**GOOD, "namespaces": ["a" * 64]}, {TOO_LONG, UNCHECKED}),
    (
        {**GOOD, "namespaces": [f"n{number}" for number in range(1001)]},
        {too_many("spec.namespaces", 1001, 1000), UNCHECKED},
    ),
    ({"ruleType": "secret"}, {("spec.selector", "FieldValueRequired", f"Required value: {NO_SOURCES}")}),
    ({"ruleType": "secret", "names": None}, {("spec.selector", "FieldValueRequired", f"Required value: {NO_SOURCES}")}),
    ({**NAMED, "selector": {}}, {SELECTOR}),
    ({**NAMED, "names": []}, {too_few("spec.names", "items")}),
    ({**NAMED, "names": numbered(101)}, {too_many("spec.names", 101, 100), UNCHECKED}),
    ({**NAMED, "names": ["a", "a"]}, {("spec.names[1]", "FieldValueDuplicate", 'Duplicate value: "a"')}),
    ({**NAMED, "names": [1]}, {wrong_type("spec.names[0]", "string", "integer"), UNCHECKED}),
    ({**NAMED, "names": ["Login"]}, {invalid("spec.names", CAPITALS)}),
    ({**NAMED, "names": ["a:b"]}, {invalid("spec.names", CAPITALS)}),
    (
        {**NAMED, "ruleType": "rolebinding", "names": ["../b"]},
        {not_matched("spec.names[0]", "../b", NAME_OF_SOURCE)},
    ),
    ({**NAMED, "names": numbered(2), "namespaces": numbered(501)}, {invalid("spec.names", TOO_MANY_REQUESTS)}),
    ({**NAMED, "names": numbered(100), "namespaces": numbered(1000)}, {invalid("spec.names", TOO_MANY_REQUESTS)}),
    ({**NAMED, "keys": {}}, {invalid("spec.keys", EMPTY_KEYS)}),
    ({**NAMED, "keys": {"include": None}}, {invalid("spec.keys", EMPTY_KEYS)}),
    ({**NAMED, "keys": {"include": []}}, {too_few("spec.keys.include", "items")}),
    ({**NAMED, "keys": {"rename": {}}}, {too_few("spec.keys.rename", "properties")}),
    ({**NAMED, "keys": {"include": ["tls/*"]}}, {not_matched("spec.keys.include[0]", "tls/*", GLOB_OF_KEYS)}),
    ({**NAMED, "keys": {"include": ["[ab]"]}}, {not_matched("spec.keys.include[0]", "[ab]", GLOB_OF_KEYS)}),
    ({**NAMED, "keys": {"include": numbered(101)}}, {too_many("spec.keys.include", 101, 100), UNCHECKED}),
    ({**NAMED, "keys": {"rename": {"a": "."}}}, {not_matched("spec.keys.rename.a", ".", KEY)}),
    ({**NAMED, "keys": {"rename": {"a": ".."}}}, {not_matched("spec.keys.rename.a", "..", KEY)}),
    ({**NAMED, "keys": {"rename": {"a": "..b"}}}, {not_matched("spec.keys.rename.a", "..b", KEY)}),
    ({**NAMED, "keys": {"rename": {"tls.crt": "c/d"}}}, {not_matched("spec.keys.rename.tls.crt", "c/d", KEY)}),
    ({**NAMED, "keys": {"rename": {"a": ""}}}, {too_short("spec.keys.rename.a")}),
    ({**NAMED, "keys": {"rename": {"a": 1}}}, {wrong_type("spec.keys.rename.a", "string", "integer"), UNCHECKED}),
    (
        {**NAMED, "keys": {"rename": {each: f"to-{each}" for each in numbered(101)}}},
        {too_many("spec.keys.rename", 101, 100), UNCHECKED},
    ),
    ({**NAMED, "keys": {"rename": {"tls.*": "b"}}}, {invalid("spec.keys.rename", BAD_KEY)}),
    ({**NAMED, "keys": {"rename": {"..": "b"}}}, {invalid("spec.keys.rename", BAD_KEY)}),
    ({**NAMED, "targetName": ""}, {too_short("spec.targetName")}),
    ({**NAMED, "targetName": "Login"}, {not_matched("spec.targetName", "Login", SUBDOMAIN)}),
    ({**NAMED, "targetName": "a..b"}, {not_matched("spec.targetName", "a..b", SUBDOMAIN)}),
    (
        {"ruleType": "rolebinding", "names": ["a"], "subjectNamespace": "own"},
        {unsupported("spec.subjectNamespace", "own", '"source", "target"'), UNCHECKED},
    ),
    *((spec, {invalid(f"spec.{field}", message)}) for spec, field, message in REFUSED),
]


def test_rules_that_are_refused(rules: Place) -> None:
    for spec, causes in BAD_SPECS:
        answer = create(rules, spec)

        assert (answer.status, answer.body.get("reason")) == (422, "Invalid"), spec
        assert answer.causes == causes, spec
        details = answer.body["details"]
        assert (details["name"], details["group"], details["kind"]) == ("a", "kubechores.dev", "CopyratorRule")
        assert answer.message.startswith('CopyratorRule.kubechores.dev "a" is invalid: ')
        if len(causes) == 1:
            (field, _, message) = next(iter(causes))
            assert answer.message.endswith(f"is invalid: {field}: {message}")


GOOD_SPECS: list[dict[str, Any]] = [
    NAMED,
    {**GOOD, **NAMED, "targetName": "b"},
    {**GOOD, "targetName": "b.c", "keys": {"include": ["*.crt", ".hidden"], "rename": {".a": "tls.crt", "_b": "-"}}},
    {**GOOD, "names": numbered(100), "namespaces": numbered(1000)},
    {**NAMED, "names": numbered(100), "namespaces": numbered(10)},
    {**NAMED, "names": numbered(100), "keys": {"rename": {f"{each}{'f' * 240}": each for each in numbered(100)}}},
    {"ruleType": "rolebinding", "names": ["system:Auth_1.b"], "subjectNamespace": "target"},
    {"ruleType": "networkpolicy", "names": ["a"], "subjectNamespace": "source"},
    {"ruleType": "limitrange", "names": ["a.b"]},
    {"ruleType": "resourcequota", "selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
    {"ruleType": "serviceaccount", "names": ["a"]},
]


def test_rules_that_are_accepted(rules: Place) -> None:
    for spec in GOOD_SPECS:
        answer = create(rules, spec)

        assert (answer.status, answer.body.get("spec")) == (201, spec)
        assert rules.send("DELETE", path(rules, "a")).status == 200


def test_a_new_rule(rules: Place) -> None:
    answer = create(rules, {**GOOD, "namespaces": ["x"]}, status={"observedGeneration": 9})

    assert answer.status == 201
    assert answer.body["metadata"]["generation"] == 1
    assert answer.body["status"] == NOT_READ
    assert answer.owners() == {
        "author Update": '{"f:spec":{".":{},"f:namespaces":{".":{},"v:\\"x\\"":{}},"f:ruleType":{},'
        '"f:selector":{".":{},"f:matchLabels":{".":{},"f:a":{}}}}}'
    }


def test_unknown_fields_are_dropped_or_refused(rules: Place) -> None:
    spec = {**GOOD, "extra": 1}

    strict = rules.send("POST", path(rules) + "?fieldValidation=Strict", rule(spec))
    dropped = create(rules, spec)

    unknown = 'strict decoding error: unknown field "spec.extra"'
    assert strict.problem == bad_request(
        f'CopyratorRule in version "v1" cannot be handled as a CopyratorRule: {unknown}'
    )
    assert dropped.body["spec"] == GOOD
    assert dropped.headers["Warning"] == '299 - "unknown field \\"spec.extra\\""'


def test_the_status_is_written_through_its_own_path(rules: Place) -> None:
    made = create(rules).body
    changed = {**made, "spec": {**GOOD, "orphans": "Retain"}, "status": {"conditions": [CONDITION]}}

    status = rules.send("PUT", path(rules, "a/status") + "?fieldManager=tester", changed)
    changed["metadata"] = status.body["metadata"]
    main = rules.send("PUT", path(rules, "a") + "?fieldManager=author", {**changed, "status": {}})

    assert (status.body["spec"], status.body["metadata"]["generation"]) == (GOOD, 1)
    assert status.body["status"] == {"conditions": [CONDITION]}
    assert main.body["status"] == {"conditions": [CONDITION]}
    assert (main.body["spec"]["orphans"], main.body["metadata"]["generation"]) == ("Retain", 2)
    assert main.owners()["tester Update status"] == (
        '{"f:status":{"f:conditions":{"k:{\\"type\\":\\"Ready\\"}":{"f:lastTransitionTime":{},"f:message":{},'
        '"f:observedGeneration":{},"f:reason":{},"f:status":{}}}}}'
    )


def test_a_rule_that_no_run_read_reports_so(rules: Place) -> None:
    made = create(rules)

    read = [
        made.body,
        rules.send("GET", path(rules, "a")).body,
        rules.send("GET", path(rules, "a"), accept="application/vnd.kubernetes.protobuf,application/json").body,
        rules.send("GET", path(rules)).body["items"][0],
        rules.send("PATCH", path(rules, "b") + "?fieldManager=us", rule(GOOD, "b"), APPLY).body,
        create(rules, name="c", status={"conditions": [CONDITION]}).body,
        rules.send("PATCH", path(rules, "a/status"), {"status": None}, MERGE).body,
    ]
    assert [each["status"] for each in read] == [NOT_READ] * len(read)
    assert NOT_READ["conditions"][0]["reason"] == "NotRead"


def test_the_first_run_replaces_the_default_of_the_status(rules: Place) -> None:
    made = create(rules)
    status = {"sources": 1, "copies": None, "conditions": [CONDITION]}
    patch = {"metadata": {"uid": made.body["metadata"]["uid"]}, "status": status}

    answer = rules.send("PATCH", path(rules, "a/status") + "?fieldManager=chores", patch, MERGE)

    assert (answer.status, answer.body["status"]) == (200, {"sources": 1, "conditions": [CONDITION]})
    assert answer.owners()["chores Update status"] == (
        '{"f:status":{"f:conditions":{"k:{\\"type\\":\\"Ready\\"}":{"f:lastTransitionTime":{},"f:message":{},'
        '"f:observedGeneration":{},"f:reason":{},"f:status":{}}},"f:sources":{}}}'
    )


def test_conditions_are_a_map(rules: Place) -> None:
    create(rules)

    answer = rules.send("PATCH", path(rules, "a/status"), {"status": {"conditions": [CONDITION, CONDITION]}}, MERGE)

    assert answer.causes == {("status.conditions[1]", "FieldValueDuplicate", 'Duplicate value: {"type":"Ready"}')}


def test_a_status_is_applied_condition_by_condition(rules: Place) -> None:
    create(rules)
    target = path(rules, "a/status")

    def apply(manager: str, **changes: Any) -> Answer:
        body = {**rule(None), "status": {"conditions": [{**CONDITION, **changes}]}}
        del body["spec"]
        return rules.send("PATCH", f"{target}?fieldManager={manager}", body, APPLY)

    assert apply("one").status == 200
    other = apply("two", type="Other")
    conflict = apply("two", message="not at all")

    assert [condition["type"] for condition in other.body["status"]["conditions"]] == ["Ready", "Other"]
    field = conflict.body["details"]["causes"][0]["field"]
    assert (conflict.status, field) == (409, '.status.conditions[type="Ready"].message')


def test_rules_are_applied(rules: Place) -> None:
    made = rules.send("PATCH", path(rules, "a") + "?fieldManager=us", rule(GOOD), APPLY)
    undeclared = rules.send("PATCH", path(rules, "a") + "?fieldManager=us", rule({**GOOD, "extra": 1}), APPLY)

    assert made.status == 201
    assert made.owners() == {"us Apply": '{"f:spec":{"f:ruleType":{},"f:selector":{"f:matchLabels":{"f:a":{}}}}}'}
    failed = "failed to create typed patch object (/a; kubechores.dev/v1, Kind=CopyratorRule)"
    assert undeclared.status == 500
    assert undeclared.message == f"{failed}: .spec.extra: field not declared in schema"


def test_a_replace_requires_a_resource_version(rules: Place) -> None:
    create(rules)

    answer = rules.send("PUT", path(rules, "a"), rule(GOOD))

    why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    assert answer.problem == unprocessable(f'copyrators.kubechores.dev "a" is invalid: {why}')


@pytest.mark.parametrize(
    ("changed", "status", "message"),
    [
        (
            {"kind": "Other"},
            422,
            'Other.kubechores.dev "a" is invalid: kind: Invalid value: "Other": must be CopyratorRule',
        ),
        (
            {"apiVersion": "kubechores.dev/v2"},
            400,
            "the API version in the data (kubechores.dev/v2) does not match the expected API version "
            "(kubechores.dev/v1)",
        ),
    ],
)
def test_a_body_of_another_kind(rules: Place, changed: dict[str, str], status: int, message: str) -> None:
    body = {key: value for key, value in rule(None, **changed).items() if key != "spec"}

    answer = rules.send("POST", path(rules), body)

    assert (answer.status, answer.message) == (status, message)


def test_columns(rules: Place) -> None:
    create(rules, {**GOOD, "namespaces": ["x", "y"]})

    answer = rules.send("GET", path(rules), accept=TABLE)

    columns = [(column["name"], column["priority"]) for column in answer.body["columnDefinitions"]]
    shown, wide = [name for name, priority in columns if not priority], [name for name, priority in columns if priority]
    assert shown == ["Name", "Type", "Sources", "Copies", "Conflicts", "Ready", "Last Run", "Age"]
    assert wide == ["From", "Desired", "Reason"]
    cells = dict(zip([name for name, _ in columns], answer.body["rows"][0]["cells"], strict=True))
    assert (cells["From"], cells["Ready"], cells["Reason"]) == ('["x","y"]', "Unknown", "NotRead")
    assert {cells[name] for name in ("Sources", "Desired", "Copies", "Conflicts", "Last Run")} == {None}

    status = {"sources": 2, "desiredCopies": 9, "copies": 0, "conflictCount": 9, "lastRunTime": "2026-01-01T00:00:00Z"}
    rules.send("PATCH", path(rules, "a/status"), {"status": status}, MERGE)
    cells = rules.send("GET", path(rules), accept=TABLE).body["rows"][0]["cells"]
    assert cells[:7] == ["a", "secret", '["x","y"]', 2, 9, 0, 9]
    assert re.fullmatch(r"\d+d|\d+y.*", cells[9])


def test_discovery_of_the_group(rules: Place) -> None:
    found = rules.send("GET", "/apis/kubechores.dev/v1").body["resources"]

    named = {resource["name"]: resource for resource in found}
    main = named["copyrators"]
    assert (main["kind"], main["namespaced"]) == ("CopyratorRule", True)
    assert (main["shortNames"], main["categories"]) == (["copyr", "copyratorrule", "copyratorrules"], ["kubechores"])
    assert set(named["copyrators/status"]["verbs"]) == {"get", "patch", "update"}


@pytest.fixture
def definition(place: Place) -> Iterator[tuple[Place, dict[str, Any]]]:
    """A copy of the CRD in a group of the test's own."""
    crd = copy.deepcopy(CRD)
    group = f"{place.namespace}.test"
    crd["spec"]["group"] = group
    crd["metadata"]["name"] = f"copyrators.{group}"
    crd["spec"]["names"]["categories"] = []
    yield place, crd
    place.send("DELETE", f"{CRDS}/{crd['metadata']['name']}")


def test_an_applied_crd_is_served_until_it_is_deleted(definition: tuple[Place, dict[str, Any]]) -> None:
    place, crd = definition
    target = f"{CRDS}/{crd['metadata']['name']}"
    listed = place.path("copyrators", "", f"{crd['spec']['group']}/v1")

    before = place.send("GET", listed)
    applied = place.send("PATCH", f"{target}?fieldManager=chores&force=true", crd, APPLY)
    assert (before.status, before.raw) == (404, b"404 page not found\n")
    assert applied.status == 201
    assert until(lambda: place.send("GET", listed).status == 200)

    conditions = place.send("GET", target).body["status"]["conditions"]
    assert {each["type"]: each["status"] for each in conditions} == {"Established": "True", "NamesAccepted": "True"}
    again = place.send("PATCH", f"{target}?fieldManager=chores&force=true", crd, APPLY)
    assert (again.status, again.version) == (200, place.send("GET", target).version)
    assert "chores Apply" in again.owners()

    assert place.send("DELETE", target).body["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert until(lambda: place.send("GET", listed).status == 404)


def test_names_of_a_crd_that_are_null_are_as_if_not_set(definition: tuple[Place, dict[str, Any]]) -> None:
    place, crd = definition
    crd["spec"]["names"] |= {"singular": None, "listKind": None, "shortNames": None, "categories": None}

    created = place.send("POST", CRDS, crd)

    assert created.status == 201
    names = {
        "plural": "copyrators",
        "singular": "copyratorrule",
        "kind": "CopyratorRule",
        "listKind": "CopyratorRuleList",
    }
    assert created.body["spec"]["names"] == names
    assert until(lambda: place.send("GET", place.path("copyrators", "", f"{crd['spec']['group']}/v1")).status == 200)


def test_an_upgrade_of_the_crd_sets_the_default_of_older_rules(definition: tuple[Place, dict[str, Any]]) -> None:
    place, crd = definition
    target = f"{CRDS}/{crd['metadata']['name']}?fieldManager=chores&force=true"
    listed = place.path("copyrators", "", f"{crd['spec']['group']}/v1")
    older = copy.deepcopy(crd)
    del older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["default"]
    place.send("PATCH", target, older, APPLY)
    made = {**rule(GOOD), "apiVersion": f"{crd['spec']['group']}/v1"}
    assert until(lambda: place.send("POST", listed, made).status == 201)
    before = place.send("GET", f"{listed}/a")
    assert "status" not in before.body

    place.send("PATCH", target, crd, APPLY)

    assert until(lambda: place.send("GET", f"{listed}/a").body.get("status") == NOT_READ)
    assert place.send("GET", f"{listed}/a").version == before.version
