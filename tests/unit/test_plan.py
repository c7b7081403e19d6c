"""sync-copies' plan: a pure function of the observation."""

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from jobs.core.sync_copies.desired import Place
from jobs.core.sync_copies.kinds import KINDS
from jobs.core.sync_copies.observed import Namespace, Observed, Settings, Source, refused
from jobs.core.sync_copies.plan import plan
from jobs.core.sync_copies.rules import CopyMetadata, Rule, Spec, Targets
from jobs.core.sync_copies.selectors import LabelSelector
from jobs.core.sync_copies.state import Context, Required, required
from jobs.kit.data.contents import Content, digested, field_set, fingerprint
from jobs.kit.data.objects import Header, Ownership, ReducedObject
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.model import (
    Action,
    Dependency,
    DryRun,
    ExitCode,
    FieldDiff,
    Finding,
    ObjectKey,
    Plan,
    RunOptions,
    Severity,
)
from jobs.kit.values.reads import Head, ReadResult, unreadable
from jobs.kit.values.stamps import MANAGER
from jobs.kit.values.text import HIDDEN
from tests.canary import canary

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
SETTINGS = Settings("kube-chores")
CONTENT = Content(data={"a": "1", "b": "2"})
SELECTOR = LabelSelector({"copyrator": "true"})


def head(name: str) -> Head:
    return Head(ObjectKey("CopyratorRule", name, "kube-chores"), generation=1, status=b'{"selectedGeneration": 1}')


def rule(name: str = "rule", source: str = "home", **fields: object) -> Rule:
    return Rule(head(name), Spec("configmap", SELECTOR, (source,), **fields))  # type: ignore[arg-type]


def source(
    namespace: str = "home", content: Content = CONTENT, uid: str = "", labels: Mapping[str, str] | None = None
) -> ReducedObject:
    nobody = Ownership(field_set([]), (), False, frozenset(), frozenset())
    version = f"{uid or f'uid-{namespace}'} 1"
    return ReducedObject(namespace, "settings", version, Header(labels or {}, {}, nobody), content)


def copy(namespace: str, of: ReducedObject, by: Rule, *others: str) -> ReducedObject:
    """Return a copy as in a metadata-only list, created for this rule from this source."""
    assert of.content
    name = f"{of.namespace}/{of.name}"
    stamp = stamps.stamp("sync-copies", "kube-chores", by.name, name, fingerprint(of.content, of.uid))
    ownership = Ownership(
        of.content.field_sets()[0], others, False, frozenset(stamp.labels), frozenset(stamp.annotations)
    )
    return ReducedObject(namespace, "settings", "copy-uid 5", Header(stamp.labels, stamp.annotations, ownership))


def as_read(each: ReducedObject, rule_type: str = "configmap") -> Source:
    """Return what a run keeps of an object that a rule selects."""
    why = KINDS[rule_type].why_never_copied(each, each.content or Content())
    key = ObjectKey(KINDS[rule_type].name, each.name, each.namespace)
    return Finding("skipped", Severity.INFO, key, why) if why else each


def observed(
    rules: list[Rule], sources: list[ReducedObject], copies: list[ReducedObject], *namespaces: str
) -> Observed:
    names = {"home", *namespaces, *(name for each in rules for name in each.spec.namespaces)}
    return Observed(
        tuple(rules),
        tuple(Namespace(name, {}, True, False) for name in sorted(names)),
        {
            q: tuple(as_read(s, q.rule_type) for s in sources if s.namespace == q.namespace)
            for r in rules
            for q in r.queries()
        },
        {"configmap": {"settings": {each.namespace: each for each in copies}} if copies else {}},
    )


def planned(world: Observed, settings: Settings = SETTINGS) -> Plan:
    return plan(world, settings, NOW)


def only(result: Plan) -> Finding:
    assert len(result.findings) == 1, result.findings
    return result.findings[0]


def test_a_copy_as_desired_is_unchanged_without_a_read() -> None:
    result = planned(observed([rule()], [source()], [copy("team", source(), rule())], "team"))

    assert (result.findings, result.dependencies, result.unchanged) == ((), (), 1)


def test_a_copy_with_a_removed_or_added_field_is_read_first() -> None:
    whole = copy("team", source(), rule())
    ownership = whole.header.ownership
    for ours in (["data.a"], ["data.a", "data.b", "data.c"], []):
        changed = replace(ownership, content=field_set(ours))
        edited = replace(whole, header=replace(whole.header, ownership=changed))
        world = observed([rule()], [source()], [edited], "team")
        assert planned(world).dependencies == (Dependency(ObjectKey("ConfigMap", "settings", "team")),)


def test_a_changed_source_replaces_exactly_the_listed_version_without_a_read() -> None:
    changed = source(content=Content(data={"a": "new"}))

    finding = only(planned(observed([rule()], [changed], [copy("team", source(), rule())], "team")))

    assert finding.change
    assert (finding.code, finding.change.action) == ("outdated", Action.REPLACE)
    assert b'"resourceVersion":"5"' in finding.change.body.encode()
    assert b'"uid":"copy-uid"' in finding.change.body.encode()


def test_a_recreated_source_with_the_same_content_updates_the_stamp() -> None:
    recreated = source(uid="another")

    finding = only(planned(observed([rule()], [recreated], [copy("team", source(), rule())], "team")))

    assert finding.change and finding.change.action is Action.REPLACE


def test_two_rules_that_select_the_same_source_create_one_copy() -> None:
    rules = [rule("b"), rule("a")]

    finding = only(planned(observed(rules, [source()], [], "team")))

    assert finding.subjects == ("a", "b")
    assert b'"kubechores.dev/rule":"kube-chores/a"' in ((finding.change and finding.change.body.encode()) or b"")


def test_a_source_is_never_adopted_even_when_the_list_of_sources_failed() -> None:
    """Otherwise two sources could adopt each other: both would become copies without a source, and be deleted."""
    both = replace(rule(), spec=Spec("configmap", SELECTOR, ("home", "other"), conflict="Adopt"))
    world = observed([both], [source()], [], "other")
    read_queries = {query: found for query, found in world.sources.items() if query.namespace == "home"}
    place = ObjectKey("ConfigMap", "settings", "other")
    metadata = b'{"name": "settings", "namespace": "other", "labels": {"copyrator": "true"}}'
    document = ReadResult(b'{"metadata": %s, "data": {"c": "3"}}' % metadata)

    finding = only(planned(replace(world, sources=read_queries).with_documents({Dependency(place): document}, {})))

    assert (finding.code, finding.object, finding.change) == ("conflict", place, None)
    assert "a rule selects it as a source" in finding.reason


def test_a_source_of_another_rule_is_not_adopted_under_a_target_name() -> None:
    rules = [rule("a", conflict="Adopt", target_name="theirs"), rule("b", "team", targets=Targets(exclude=("*",)))]
    world, place = observed(rules, [source()], []), ObjectKey("ConfigMap", "theirs", "team")
    metadata = b'{"name": "theirs", "namespace": "team", "labels": {"copyrator": "true"}}'
    document = ReadResult(b'{"metadata": %s, "data": {"c": "3"}}' % metadata)

    result = planned(world.with_documents({Dependency(place): document}, {}))

    (found,) = (each for each in result.findings if each.object == place)
    assert (found.code, found.change) == ("conflict", None)
    assert "a rule selects it as a source" in found.reason


def test_a_copy_of_a_refused_source_stays_although_its_rule_has_another_name_and_target_for_it() -> None:
    changed = rule(targets=Targets(exclude=("team",)), target_name="other")
    world = observed([changed], [], [copy("team", source(), rule())], "team")
    found = refused(ObjectKey("ConfigMap", "settings", "home"), "it has no key a")
    whole = replace(world, sources=dict.fromkeys(changed.queries(), (found,)))

    assert [each.code for each in planned(whole).findings] == ["refused"]


def test_a_copy_changes_its_source_only_in_a_run_that_could_read_everything() -> None:
    rules = [rule("a", "home"), rule("b", "other")]
    existing = copy("team", source("home"), rules[0])
    world = observed(rules, [source("other")], [existing], "team")
    unreadable = Finding("unreadable", Severity.CRITICAL, rules[0].head.key, "its sources cannot be read")

    uncertain_plan = planned(replace(world, failures=(unreadable,)))
    (uncertain,) = (finding for finding in uncertain_plan.findings if finding.object.namespace == "team")
    assert (uncertain.code, uncertain.change, uncertain.subjects) == ("unreadable", None, ("b",))
    assert uncertain.reason.startswith("stays a copy of home/settings")

    (held,) = (finding for finding in planned(world).findings if finding.object.namespace == "team")
    assert (held.code, held.change) == ("source-changed", None)

    confirmed = planned(world, replace(SETTINGS, max_deletes=10))
    (changed,) = (finding for finding in confirmed.findings if finding.object.namespace == "team")
    assert changed.change
    assert changed.reason == "source changed from home/settings to other/settings"


def test_objects_that_are_never_copied_are_named_in_one_order() -> None:
    bootstrap = source(content=Content("bootstrap.kubernetes.io/token", {"a": "1"}))
    tokens = [replace(bootstrap, name=name) for name in ("a", "b")]
    of_secrets = replace(rule(), spec=replace(rule().spec, rule_type="secret"))
    mistaken = replace(of_secrets, head=replace(of_secrets.head, generation=2))

    plans = [planned(observed([mistaken], order, [], "team")) for order in (tokens, tokens[::-1])]

    (first, second) = ([each.reason for each in found.findings if each.code == "nothing-selected"] for found in plans)
    assert first == second
    assert "secret/a in namespace home" in first[0]


OF_HOME = ObjectKey("ConfigMap", "settings", "home")


@pytest.mark.parametrize(
    ("first", "codes"),
    [
        (None, ["unreadable"]),  # the list of home failed
        ((refused(OF_HOME, "it has no key a"),), ["refused", "shadowed"]),
        ((unreadable(OF_HOME, InvalidObjectError("is not valid")),), ["shadowed", "unreadable"]),
        ((as_read(source(labels={stamps.MANAGED_BY: MANAGER, stamps.JOB: "sync-copies"})),), ["missing", "skipped"]),
        ((), ["missing"]),
    ],
)
def test_a_source_of_a_later_namespace_is_copied_only_if_earlier_ones_have_none(
    first: tuple[Any, ...] | None, codes: list[str]
) -> None:
    one = rule(targets=Targets(include=("team",)))
    both = replace(one, spec=replace(one.spec, namespaces=("home", "other")))
    world = observed([both], [source("other")], [], "team")
    sources = {query: found for query, found in world.sources.items() if query.namespace == "other"}
    failed = Finding("unreadable", Severity.CRITICAL, both.head.key, "its sources cannot be read", subjects=("rule",))
    if first is not None:
        sources |= {query: first for query in world.sources if query.namespace == "home"}
    world = replace(world, sources=sources, failures=() if first is not None else (failed,))

    assert sorted(each.code for each in planned(world).findings) == codes


def test_a_named_source_is_copied_although_another_one_of_its_namespace_cannot_be_read() -> None:
    one = rule(targets=Targets(include=("team",)))
    named = replace(one, spec=replace(one.spec, selector=LabelSelector(), names=("settings", "other")))
    world = observed([named], [source()], [], "team")
    failed = Finding("unreadable", Severity.CRITICAL, ObjectKey("ConfigMap", "other", "home"), "", subjects=("rule",))
    read = {query: found for query, found in world.sources.items() if query.name == "settings"}

    found = planned(replace(world, sources=read, failures=(failed,)))

    assert sorted(each.code for each in found.findings) == ["missing", "unreadable"]


@pytest.mark.parametrize(("content", "codes"), [("x" * 35, ["large-writes"]), ("x" * 33, [])])
@pytest.mark.parametrize("keeps", [True, False])
def test_a_rule_that_writes_much_at_once_is_reported(
    monkeypatch: pytest.MonkeyPatch, content: str, codes: list[str], keeps: bool
) -> None:
    monkeypatch.setattr("jobs.core.sync_copies.plan._LARGE_WRITES", 100)
    large = Content(data={"a": content})
    made = source(content=large if keeps else digested(large, "uid"))  # type: ignore[arg-type]
    rules = [rule(targets=Targets(include=("team-*",))), rule("other", "elsewhere")]

    found = planned(observed(rules, [made], [], "team-1", "team-2", "team-3"))

    assert [each.code for each in found.findings if each.object.kind == "CopyratorRule"] == codes
    assert all(each.subjects == ("rule",) for each in found.findings)


def test_a_copy_is_never_a_source() -> None:
    managed = source(labels={stamps.MANAGED_BY: MANAGER, stamps.JOB: "sync-copies"})

    skipped = planned(observed([rule()], [managed], [], "team"))

    assert only(skipped).severity is Severity.INFO
    assert "never a source" in only(skipped).reason


def test_only_a_run_that_read_every_rule_reports_orphans() -> None:
    orphan = copy("team", source(), rule())
    world = observed([rule("another", targets=Targets(exclude=("*",)))], [source()], [orphan], "team")
    incomplete = replace(
        world, failures=(Finding("unreadable", Severity.CRITICAL, ObjectKey("CopyratorRule", "x"), ""),)
    )

    assert only(planned(world)).code == "orphan"
    assert only(planned(incomplete)).code == "unreadable"
    assert planned(world, replace(SETTINGS, rule_name="another")).findings == ()
    assert planned(world, replace(SETTINGS, rules=world.rules)).findings == ()


def test_an_orphan_whose_stamp_has_no_policy_is_retained() -> None:
    """A release without spec.orphans created it, or a tenant removed the annotation."""
    orphan = copy("team", source(), rule("deleted"))
    annotations = {key: value for key, value in orphan.header.annotations.items() if key != stamps.ORPHANS}
    without = replace(orphan, header=replace(orphan.header, annotations=annotations))

    assert only(planned(observed([], [], [orphan], "team"))).code == "orphan"
    retained = only(planned(observed([], [], [without], "team")))
    assert (retained.code, retained.change) == ("retained", None)


def test_a_diff_of_a_secret_hides_changed_annotations() -> None:
    """An annotation may repeat the data."""
    by = Rule(head("rule"), Spec("secret", SELECTOR, ("home",), metadata=CopyMetadata(annotations={"note": canary()})))
    there = replace(copy("team", source(), by), content=CONTENT)
    world = replace(observed([by], [source()], [], "team"), copies={"secret": {"settings": {"team": there}}})

    found = only(planned(world, replace(SETTINGS, run=RunOptions(diff=True))))

    assert found.diff == (FieldDiff("annotation note", None, HIDDEN),)


def test_a_copy_of_a_source_that_cannot_be_decoded_stays() -> None:
    there = copy("team", source(), rule())
    world = observed([rule()], [], [there], "team")
    invalid = unreadable(ObjectKey("ConfigMap", "settings", "home"), InvalidObjectError("it is not"))
    incomplete = replace(world, sources=dict.fromkeys(world.sources, (invalid,)))

    assert only(planned(world)).code == "orphan"
    found = [(each.code, each.object.namespace, each.change) for each in planned(incomplete).findings]
    assert found == [("unreadable", "home", None), ("unreadable", "team", None)]


def test_a_terminating_namespace_is_skipped() -> None:
    world = observed([rule()], [source()], [copy("team", source(), rule("deleted"))], "team")
    terminating = replace(world, namespaces=(Namespace("home", {}, True, False), Namespace("team", {}, False, False)))

    assert planned(terminating).findings == ()


def test_a_dry_run_reads_every_missing_place_and_reports_conflicts() -> None:
    world = observed([rule()], [source()], [], "team-a", "team-b")
    settings = replace(SETTINGS, run=RunOptions(dry_run=DryRun.CLIENT))
    needs = planned(world, settings).dependencies
    absent = ReadResult(error=ApiError(404, "not found"))
    of_others = ReadResult(b'{"metadata": {"name": "settings", "namespace": "team-b"}}')
    with_reads = world.with_documents(dict(zip(needs, (absent, of_others), strict=True)), {})

    result = planned(with_reads, settings)

    assert [need.full for need in needs] == [False, False]
    assert [(f.code, f.object.namespace) for f in result.findings] == [("missing", "team-a"), ("conflict", "team-b")]


def test_metadata_of_the_rule_is_set_and_removed_and_that_of_others_stays() -> None:
    before = rule(metadata=CopyMetadata(labels={"ours": "1"}))
    listed = copy("team", source(), before)
    labels = {**listed.header.labels, "ours": "1", "theirs": "2"}
    ours = frozenset({*listed.header.labels, "ours"})
    ownership = replace(listed.header.ownership, labels=ours)
    there = replace(listed, header=replace(listed.header, labels=labels, ownership=ownership))
    now_without = rule(metadata=CopyMetadata(copy_labels=("team",)))

    finding = only(planned(observed([now_without], [source(labels={"team": "blue"})], [there], "team")))

    assert finding.reason == "label ours, label team changed"
    body = finding.change.body.encode() if finding.change else b""
    assert b'"ours"' not in body
    assert b'"theirs":"2"' in body
    assert b'"team":"blue"' in body


def test_a_skipped_source_is_reported_for_all_rules_that_select_it() -> None:
    managed = source(labels={stamps.MANAGED_BY: MANAGER, stamps.JOB: "sync-copies"})

    for rules in ([rule("a"), rule("b")], [rule("b"), rule("a")]):
        assert only(planned(observed(rules, [managed], [], "team"))).subjects == ("a", "b")


@pytest.mark.parametrize("is_namespace", [True, False], ids=["namespace", "source"])
def test_a_rule_is_not_mistaken_because_something_of_it_cannot_be_decoded(is_namespace: bool) -> None:
    new = Rule(replace(rule().head, generation=2), rule().spec)
    world = observed([new], [], [copy("team", source(), new)], "team")
    error = InvalidObjectError("it is not")
    if is_namespace:
        unread = Finding("unreadable", Severity.WARNING, ObjectKey("Namespace", "home"), "")
        world = replace(world, namespaces=world.namespaces[1:], failures=(unread,))
    else:
        invalid = unreadable(ObjectKey("ConfigMap", "settings", "home"), error)
        world = replace(world, sources=dict.fromkeys(world.sources, (invalid,)))

    codes = {each.code for each in planned(world).findings}

    assert codes == ({"unreadable", "nothing-selected"} if is_namespace else {"unreadable"})


def test_a_rule_whose_sources_cannot_be_read_is_not_reported_as_mistaken() -> None:
    new = Rule(replace(rule().head, generation=2), rule().spec)
    world = observed([new], [], [copy("team", source(), new)], "team")
    denied = Finding("unreadable", Severity.CRITICAL, new.head.key, "", subjects=(new.name,))

    assert only(planned(replace(world, sources={}, failures=(denied,)))) == denied


@pytest.mark.parametrize(
    ("mistaken", "is_blocked"),
    [
        (rule("new", targets=Targets(include=("taem",))), True),
        (rule("new", "platfrom"), True),
        (rule("new", "other"), False),
        (rule("new", "platfrom", targets=Targets(include=("elsewhere",))), False),
        (Rule(head("new"), Spec("secret", SELECTOR, ("platfrom",))), False),
    ],
    ids=["targets", "source namespace", "another source namespace", "other targets", "another type"],
)
def test_a_mistaken_rule_blocks_the_deletion_of_copies_that_it_may_select(mistaken: Rule, is_blocked: bool) -> None:
    edited = Rule(replace(mistaken.head, generation=2), mistaken.spec)
    orphan = copy("team", source(), rule("deleted"))
    world = observed([edited], [source()], [orphan], "team", "elsewhere")
    active = tuple(each for each in world.namespaces if each.name != "platfrom")
    queries = {query: found if query.rule_type == "configmap" else () for query, found in world.sources.items()}
    world = replace(world, namespaces=active, sources=queries, copies={**world.copies, "secret": {}})

    (found,) = (each for each in planned(world).findings if each.code == "orphan")

    assert (found.exit_code is ExitCode.BRAKE, found.change is None) == (is_blocked, is_blocked)
    assert found.subjects == (("new",) if is_blocked else ("deleted",))


def test_a_mistaken_rule_does_not_block_the_deletion_of_copies_of_other_sources() -> None:
    edited = Rule(replace(head("new"), generation=2), rule("new", targets=Targets(include=("taem",))).spec)
    of_another = replace(source(), name="theme")
    orphan = replace(copy("team", of_another, rule("deleted")), name="theme")
    annotations = {**orphan.header.annotations, stamps.SOURCE: "home/theme"}
    orphan = replace(orphan, header=replace(orphan.header, annotations=annotations))
    world = replace(observed([edited], [source()], [], "team"), copies={"configmap": {"theme": {"team": orphan}}})

    (found,) = (each for each in planned(world).findings if each.code == "orphan")

    assert found.change


def test_a_copy_of_a_source_that_is_never_copied_is_deleted_although_its_rule_may_be_mistaken() -> None:
    edited = Rule(replace(head("rule"), generation=2), Spec("secret", SELECTOR, ("home",)))
    token = source(content=Content("bootstrap.kubernetes.io/token"))
    orphan = copy("team", token, edited)
    world = replace(observed([edited], [token], [], "team"), copies={"secret": {"settings": {"team": orphan}}})

    findings = {each.code: each for each in planned(world).findings}

    assert findings.keys() == {"nothing-selected", "skipped", "orphan"}
    assert findings["orphan"].change


def test_choices_of_many_namespaces_that_are_not_valid_are_bounded_and_prevent_no_deletion() -> None:
    names = [f"team-{number:02}" for number in range(25)]
    world = observed([rule()], [], [copy("home-2", source(), rule())], "home-2")
    odd = tuple(Namespace(name, {}, True, False, invalid_choice="no") for name in names)
    world = replace(world, namespaces=(*world.namespaces, *odd, Namespace("old", {}, False, False, invalid_choice="")))

    plain, verbose = planned(world), planned(world, replace(SETTINGS, run=RunOptions(verbose=True)))

    invalid = [each for each in plain.findings if each.code == "invalid"]
    assert [each.object for each in invalid] == [ObjectKey("Namespace", name) for name in names[:20]]
    more = 'annotation kubechores.dev/copies is "no", which has no effect; set it to "true" or "false"'
    assert [each.reason for each in invalid] == [*19 * [more], f"{more} (5 more namespaces, see -v)"]
    assert [each.object.name for each in verbose.findings if each.code == "invalid"] == names
    assert [each.code for each in plain.findings if each.change] == ["orphan"]


@pytest.mark.parametrize(
    ("value", "is_opted_out", "effect"),
    [
        ("False", True, 'opts out as "false" does; set it to "false"'),
        ("TRUE", False, 'has no effect; set it to "true"'),
        ("yes", False, 'has no effect; set it to "true" or "false"'),
    ],
)
def test_a_choice_that_is_not_valid_has_the_value_to_set(value: str, is_opted_out: bool, effect: str) -> None:
    world = replace(observed([], [], []), namespaces=(Namespace("team", {}, True, is_opted_out, invalid_choice=value),))

    (found,) = planned(world).findings

    assert (found.code, found.reason) == ("invalid", f'annotation kubechores.dev/copies is "{value}", which {effect}')


def test_copies_with_one_header_are_one_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: list[str] = []

    def noted(place: Place, context: Context) -> Required:
        evaluated.append(place.key.namespace)
        return required(place, context)

    monkeypatch.setattr("jobs.core.sync_copies.evaluate.required", noted)
    teams = [f"team-{number:02}" for number in range(50)]
    equal = copy(teams[0], source(), rule())
    copies = {each: replace(equal, namespace=each) for each in teams}
    copies[teams[7]] = copy(teams[7], source(content=Content(data={"a": "0"})), rule())
    del copies[teams[9]]

    result = planned(observed([rule()], [source()], list(copies.values()), *teams))

    assert [(each.object.namespace, each.code) for each in result.findings] == [
        (teams[7], "outdated"),
        (teams[9], "missing"),
    ]
    assert (result.unchanged, evaluated) == (48, [teams[0], teams[7], teams[9]])


def test_a_namespace_that_did_not_opt_in_has_a_decision_of_its_own() -> None:
    equal = copy("a", source(), rule())
    world = observed([rule(targets=Targets(include=("*", "kube-x")))], [source()], [equal], "a", "kube-x")
    copies = {each: replace(equal, namespace=each) for each in ("a", "kube-x")}

    result = planned(replace(world, copies={"configmap": {"settings": copies}}))

    assert [(each.object.namespace, each.code) for each in result.findings] == [("kube-x", "not-opted-in")]


def test_copies_with_one_header_and_other_contents_are_decisions_of_their_own() -> None:
    equal = replace(copy("a", source(), rule()), content=CONTENT)
    edited = replace(equal, namespace="b", content=Content(data={"a": "0"}))

    result = planned(observed([rule()], [source()], [equal, edited], "a", "b"))

    assert [(each.object.namespace, each.code) for each in result.findings] == [("b", "drifted")]


def test_a_copy_with_an_equal_header_that_no_rule_requires_is_an_orphan() -> None:
    equal = copy("a", source(), rule(targets=Targets(include=("a",))))
    copies = [replace(equal, namespace=each) for each in ("a", "b")]

    result = planned(observed([rule(targets=Targets(include=("a",)))], [source()], copies, "a", "b"))

    assert [(each.object.namespace, each.code) for each in result.findings] == [("b", "orphan")]
