"""Lists: pages, selectors, and the metadata-only form that a sweep reads."""

import gzip
import json
from urllib.parse import quote

import pytest

from tests.contract.conftest import METADATA_LIST, ONE_METADATA, TABLE, Answer, Place, bad_request

NAMES = [f"s{number:02}" for number in range(12)]


@pytest.fixture
def filled(place: Place) -> Place:
    """Twelve labelled Secrets and a last one without labels."""
    for number, name in enumerate(NAMES):
        labels = {"set": place.namespace, "n": str(number), **({"odd": "yes"} if number % 2 else {})}
        assert place.secret(name, metadata={"labels": labels}, stringData={"a": "canary-1"}).status == 201
    assert place.secret("unlabelled").status == 201
    return place


def pages(place: Place, path: str, accept: str = METADATA_LIST) -> list[Answer]:
    """All pages of a list."""
    found = [place.send("GET", path, accept=accept)]
    while token := found[-1].body["metadata"].get("continue"):
        found.append(place.send("GET", f"{path}&continue={token}", accept=accept))
    return found


def names(answer: Answer) -> list[str]:
    return [item["metadata"]["name"] for item in answer.body["items"] or []]


def test_metadata_only(place: Place) -> None:
    made = place.secret(metadata={"labels": {"x": "y"}}, stringData={"a": "canary-1"}).body
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"]}

    one = place.send("GET", place.path("secrets", "a"), accept=ONE_METADATA)
    many = place.send("GET", place.path("secrets"), accept=METADATA_LIST)

    assert one.body == partial
    assert many.body["items"] == [partial]
    assert (many.body["kind"], many.body["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert set(many.body["metadata"]) == {"resourceVersion"}
    assert b"Y2FuYXJ5" not in many.raw


def test_an_empty_list_of_metadata_is_null(place: Place) -> None:
    metadata = place.send("GET", place.path("secrets"), accept=METADATA_LIST)
    objects = place.send("GET", place.path("secrets"))

    assert metadata.body["items"] is None
    assert objects.body["items"] == []


def test_objects_in_a_list_have_no_kind(place: Place) -> None:
    place.secret()

    answer = place.send("GET", place.path("secrets"))

    assert answer.body["kind"] == "SecretList"
    assert "kind" not in answer.body["items"][0]


def test_a_list_is_sorted_by_namespace_and_name_as_one_key(place: Place) -> None:
    longer = place.api.namespace(place.namespace + "-b")
    for namespace, name in ((place.namespace, "b"), (longer, "a"), (place.namespace, "a")):
        body = {"metadata": {"name": name, "labels": {"set": place.namespace}}}
        place.send("POST", f"/api/v1/namespaces/{namespace}/configmaps", body)

    answer = place.send("GET", f"/api/v1/configmaps?labelSelector=set={place.namespace}")

    found = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in answer.body["items"]]
    assert found == [(longer, "a"), (place.namespace, "a"), (place.namespace, "b")]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(1, [1] * 12 + [0]), (5, [5, 5, 2]), (6, [6, 6, 0]), (11, [11, 1]), (12, [12, 0]), (13, [12])],
)
def test_pages_of_a_labelled_list_can_end_with_an_empty_one(filled: Place, limit: int, expected: list[int]) -> None:
    found = pages(filled, f"{filled.path('secrets')}?limit={limit}&labelSelector=set={filled.namespace}")

    assert [len(names(answer)) for answer in found] == expected
    assert [name for answer in found for name in names(answer)] == NAMES
    assert all("remainingItemCount" not in answer.body["metadata"] for answer in found)
    assert len({answer.body["metadata"]["resourceVersion"] for answer in found}) == 1


@pytest.mark.parametrize(
    ("limit", "expected"), [(5, [(5, 8), (5, 3), (3, None)]), (12, [(12, 1), (1, None)]), (13, [(13, None)])]
)
def test_pages_of_a_list_contain_the_remaining_count(
    filled: Place, limit: int, expected: list[tuple[int, int | None]]
) -> None:
    found = pages(filled, f"{filled.path('secrets')}?limit={limit}")

    counts = [(len(names(answer)), answer.body["metadata"].get("remainingItemCount")) for answer in found]
    assert counts == expected


def test_a_list_of_one_object_contains_the_count_of_all(filled: Place) -> None:
    one = filled.send("GET", "/api/v1/secrets?limit=1", accept=METADATA_LIST)
    all_secrets = filled.send("GET", "/api/v1/secrets", accept=METADATA_LIST)

    assert len(names(one)) == 1
    assert one.body["metadata"]["remainingItemCount"] + 1 == len(names(all_secrets)) > len(NAMES)


def test_later_pages_show_the_state_of_the_first(filled: Place) -> None:
    path = f"{filled.path('secrets')}?limit=5"
    first = filled.send("GET", path)
    filled.send("DELETE", filled.path("secrets", "s11"))
    filled.secret("s99")

    token = first.body["metadata"]["continue"]
    rest = filled.send("GET", f"{filled.path('secrets')}?limit=500&continue={token}")

    assert names(rest) == [*NAMES[5:], "unlabelled"]
    assert rest.version == first.version


SELECTORS: list[tuple[str, list[int]]] = [
    ("odd", [1, 3, 5, 7, 9, 11]),
    ("!odd,n", [0, 2, 4, 6, 8, 10]),
    ("n in (1,2, 3)", [1, 2, 3]),
    ("n notin (1,3,5),odd", [7, 9, 11]),
    ("odd notin (x),n<4", [0, 1, 2, 3]),
    ("n==4", [4]),
    ("n=4", [4]),
    ("n!=4,n<6", [0, 1, 2, 3, 5]),
    ("n>9", [10, 11]),
    (" odd , n = 3 ", [3]),
    ("n=", []),
    ("absent", []),
]


def test_label_selectors(filled: Place) -> None:
    for selector, expected in SELECTORS:
        answer = filled.send("GET", f"{filled.path('secrets')}?labelSelector={quote(selector)}")

        assert names(answer) == [NAMES[number] for number in expected], selector


NOT_VALID: list[tuple[str, str]] = [
    ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
    ("=x", "found '=', expected: !, identifier, or 'end of string'"),
    ("n in (1", "unable to parse requirement: found '', expected: ',' or ')'"),
    ("odd,,n", "found ',', expected: identifier after ','"),
    (
        "x/y/z=1",
        'unable to parse requirement: <nil>: Invalid value: "x/y/z": a valid label key must consist of '
        "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. "
        "'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. "
        "'example.com/MyName')",
    ),
    (
        "n>x",
        "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be "
        "an integer",
    ),
]


def test_label_selectors_that_are_not_valid(place: Place) -> None:
    for selector, message in NOT_VALID:
        answer = place.send("GET", f"{place.path('secrets')}?labelSelector={quote(selector)}")

        assert answer.problem == bad_request(message)


FIELD_SELECTORS: list[tuple[str, list[str]]] = [
    *(("metadata.name=s03", ["s03"]), ("type=Opaque,metadata.name=s03", ["s03"])),
    *(("metadata.name!=unlabelled", NAMES), ("metadata.name=none", [])),
]


def test_field_selectors(filled: Place) -> None:
    for selector, expected in FIELD_SELECTORS:
        answer = filled.send("GET", f"{filled.path('secrets')}?fieldSelector={quote(selector)}")

        assert names(answer) == expected, selector


def test_a_field_selector_that_is_not_served(place: Place) -> None:
    answer = place.send("GET", f"{place.path('secrets')}?fieldSelector=data.a%3Db")

    assert (answer.status, answer.message) == (400, "field label not supported: data.a")


def test_a_table_for_kubectl(place: Place) -> None:
    place.secret(stringData={"a": "canary-1"})

    answer = place.send("GET", place.path("secrets"), accept=TABLE)

    assert [column["name"] for column in answer.body["columnDefinitions"]] == ["Name", "Type", "Data", "Age"]
    assert answer.body["rows"][0]["cells"][:3] == ["a", "Opaque", 1]
    assert answer.body["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


def test_everything_selected_can_be_deleted_at_once(filled: Place) -> None:
    answer = filled.send("DELETE", f"{filled.path('secrets')}?labelSelector=odd")

    assert (answer.status, answer.body["kind"], len(answer.body["items"])) == (200, "SecretList", 6)
    assert names(filled.send("GET", filled.path("secrets"))) == [*NAMES[::2], "unlabelled"]


@pytest.mark.parametrize("form", [METADATA_LIST, "application/json"])
def test_a_long_list_is_compressed_for_clients_that_accept_it(place: Place, form: str) -> None:
    annotations = {"example.com/text": "x" * 70_000}
    # Each namespace gets kube-root-ca.crt at some time.
    path = f"{place.path('configmaps')}?fieldSelector=metadata.name%21%3Dkube-root-ca.crt"
    assert place.config_map("a", metadata={"annotations": annotations}).status == 201
    short = place.send("GET", path, accept=form, encoding="gzip")
    assert place.config_map("b", metadata={"annotations": annotations}).status == 201

    long = place.send("GET", path, accept=form, encoding="gzip")
    other = place.send("GET", path, accept=form)

    assert [each.headers.get("Content-Encoding") for each in (short, long, other)] == [None, "gzip", None]
    assert len(long.raw) < 10_000 < 140_000 < len(other.raw)
    assert json.loads(gzip.decompress(long.raw))["items"] == other.body["items"]
