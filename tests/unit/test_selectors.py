"""Label selectors and globs."""

import pytest

from jobs.core.sync_copies.selectors import Expression, LabelSelector, glob_matcher, selector_problems

LABELS = {"app": "web", "tier": "front"}


@pytest.mark.parametrize(
    ("selector", "query", "matches"),
    [
        (LabelSelector(), "", True),
        (LabelSelector({"app": "web"}), "app=web", True),
        (LabelSelector({"tier": "front", "app": "api"}), "app=api,tier=front", False),
        (LabelSelector(match_expressions=(Expression("app", "In", ("web", "api")),)), "app in (api,web)", True),
        (LabelSelector(match_expressions=(Expression("app", "NotIn", ("web",)),)), "app notin (web)", False),
        (LabelSelector(match_expressions=(Expression("absent", "NotIn", ("web",)),)), "absent notin (web)", True),
        (LabelSelector(match_expressions=(Expression("app", "Exists"),)), "app", True),
        (LabelSelector(match_expressions=(Expression("app", "DoesNotExist"),)), "!app", False),
        (LabelSelector({"app": "web"}, (Expression("absent", "Exists"),)), "absent,app=web", False),
    ],
)
def test_a_selector_matches_as_its_query(selector: LabelSelector, query: str, matches: bool) -> None:
    assert selector.query() == query
    assert selector.matches(LABELS) is matches
    assert (selector.mismatches(LABELS) == []) is matches


def test_each_term_that_does_not_match_has_the_label_that_it_finds() -> None:
    terms = (
        Expression("app", "NotIn", ("web", "api")),
        Expression("app", "DoesNotExist"),
        Expression("zone", "Exists"),
        Expression("zone", "In", ("a", "b", "c", "d")),
        Expression("app", "Exists"),
    )

    assert LabelSelector({"tier": "back"}, terms).mismatches(LABELS) == [
        "label tier is front and must be back",
        "label app is web and must not be web or api",
        "label app is web and must not be set",
        "label zone is not set and must be set",
        "label zone is not set and must be a or b or c and 1 more",
    ]


@pytest.mark.parametrize(
    ("selector", "required"),
    [
        (LabelSelector(), False),
        (LabelSelector(match_expressions=(Expression("a", "DoesNotExist"),)), False),
        (LabelSelector(match_expressions=(Expression("a", "NotIn", ("x",)),)), False),
        (LabelSelector(match_expressions=(Expression("a", "Exists"),)), True),
        (LabelSelector(match_expressions=(Expression("a", "In", ("x",)),)), True),
        (LabelSelector({"a": ""}), True),
    ],
)
def test_a_selector_requires_a_label_if_it_matches_only_labelled_objects(
    selector: LabelSelector, required: bool
) -> None:
    assert selector.requires_a_label() is required
    assert selector.matches({}) is not required or not required


def test_all_problems_of_a_selector_are_reported_with_their_fields() -> None:
    selector = LabelSelector(
        {"bad key": "v", "ok": "bad value!", "a/b/c": "", "x" * 64: ""},
        (Expression("k", "In"), Expression("k", "Exists", ("v",))),
    )

    problems = list(selector_problems(selector, "spec.selector"))

    assert [problem.partition(":")[0] for problem in problems] == [
        "spec.selector.matchLabels",
        "spec.selector.matchLabels[ok]",
        "spec.selector.matchLabels",
        "spec.selector.matchLabels",
        "spec.selector.matchExpressions[0].values",
        "spec.selector.matchExpressions[1].values",
    ]


@pytest.mark.parametrize(
    ("patterns", "name", "matches"),
    [
        (["*"], "anything", True),
        (["team-?"], "team-a", True),
        (["team-?"], "team-ab", False),
        (["prod"], "prod-x", False),
        (["a", "prod*"], "prod-x", True),
        (["a|b"], "a", False),
        ([], "a", False),
    ],
)
def test_a_glob_matches_the_whole_name(patterns: list[str], name: str, matches: bool) -> None:
    assert bool(glob_matcher(patterns).fullmatch(name)) is matches
