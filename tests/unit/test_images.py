"""The images of pods and CronJobs: references, pull secrets as kubelet matches them, and turns."""

import base64
import json
from collections import Counter
from collections.abc import Mapping

import pytest

from jobs.core.mirror_audit.image_uses import (
    MOST_OF_NAMESPACE,
    MOST_REGISTRIES,
    CronJobObject,
    Image,
    Images,
    PodObject,
    Use,
    choose,
    parse_image,
    part_of,
)
from jobs.core.mirror_audit.pull_secrets import Entry, entries, matching
from jobs.kit.values.reads import decode

D = "sha256:" + 64 * "0"


@pytest.mark.parametrize(
    ("text", "image"),
    [
        ("nginx", ("docker.io", "library/nginx", "latest")),
        ("nginx:1.27", ("docker.io", "library/nginx", "1.27")),
        ("shop/app", ("docker.io", "shop/app", "latest")),
        ("docker.io/nginx", ("docker.io", "library/nginx", "latest")),
        ("index.docker.io/shop/app:1", ("docker.io", "shop/app", "1")),
        ("quay.io/a/b/c:v1", ("quay.io", "a/b/c", "v1")),
        ("registry:5000/app", ("registry:5000", "app", "latest")),
        ("registry:5000/app:5000", ("registry:5000", "app", "5000")),
        (f"quay.io/app@{D}", ("quay.io", "app", D)),
        (f"quay.io:443/app:1@{D}", ("quay.io:443", "app", D)),
        ("localhost/app", ("localhost", "app", "latest")),
        ("1234/56", ("docker.io", "1234/56", "latest")),
        *(
            (text, None)
            for text in ("", " ", "a b", "a//b", "App", "a/B", "a:", "a@", f"a@{D}0", "-a", "a:-", "https://a/b")
        ),
    ],
)
def test_a_reference_has_the_parts_that_container_runtimes_read(text: str, image: tuple[str, str, str] | None) -> None:
    assert parse_image(text) == (image and Image(*image))


# The examples of https://kubernetes.io/docs/concepts/containers/images/#config-json and the tests of kubelet.
@pytest.mark.parametrize(
    ("place", "image", "matches"),
    [
        ("quay.io", "quay.io/app", True),
        ("https://quay.io/v1/", "quay.io/app", True),
        ("http://quay.io/v2/", "quay.io/app", True),
        ("quay.io/team", "quay.io/team/app", True),
        ("quay.io/team", "quay.io/other/app", False),
        ("quay.io", "quay.io:5000/app", False),
        ("quay.io:5000", "quay.io:5000/app", True),
        ("*.example.com", "a.example.com/app", True),
        ("*.example.com", "b.a.example.com/app", False),
        ("*.*.example.com", "b.a.example.com/app", True),
        ("prefix*.example.com", "prefix-a.example.com/app", True),
        ("*", "quay.io/app", False),
        ("https://index.docker.io/v1/", "nginx", True),
        ("docker.io", "docker.io/shop/app", True),
        ("index.docker.io", "quay.io/app", False),
        ("https://[", "quay.io/app", False),
        ("", "quay.io/app", False),
        (64 * "*", "quay.io/app", False),
    ],
)
def test_a_login_is_for_the_images_that_kubelet_uses_it_for(place: str, image: str, matches: bool) -> None:
    found = secret({place: {"auth": base64.b64encode(b"robot:pass:word").decode()}})
    parsed = parse_image(image)
    assert parsed

    assert [(each.username, each.password) for each in matching(found, parsed)] == matches * [("robot", "pass:word")]


def secret(auths: object, secret_type: str = "dockerconfigjson") -> tuple[Entry, ...]:
    document = {"auths": auths} if secret_type == "dockerconfigjson" else auths
    data = {f".{secret_type}": base64.b64encode(json.dumps(document).encode()).decode()}
    return entries(f"kubernetes.io/{secret_type}", data)


def test_pull_secrets_of_any_content_are_read_or_ignored() -> None:
    valid = {"quay.io": {"username": "robot", "password": "x"}}
    assert len(secret(valid)) == len(secret(valid, "dockercfg")) == 1
    assert "robot" not in repr(secret(valid))
    auths: object
    for auths in (None, [], "x", {"quay.io": None}, *({"quay.io": {"auth": each}} for each in ("!", "/w==", "é", "a"))):
        assert secret(auths) == ()
    assert secret({"quay.io": {"username": "x", "identitytoken": "y"}}) == ()
    for data in ({}, {".dockerconfigjson": None}, {".dockerconfigjson": "!"}, {".dockerconfigjson": "e30"}):
        assert entries("kubernetes.io/dockerconfigjson", data) == ()
    for secret_type in ("kubernetes.io/dockercrash", "Opaque", ""):
        assert entries(secret_type, {".dockerconfigjson": "e30="}) == ()
    assert len(secret({f"r{number}.io": valid["quay.io"] for number in range(1000)})) == 64
    assert secret({"quay.io": {"username": "robot", "password": 40_000 * "x"}}) == ()


def pod(namespace: str, *images: str, name: str = "web", running: Mapping[str, str] | None = None) -> PodObject:
    containers = [{"name": f"c{number}", "image": image} for number, image in enumerate(images)]
    statuses = [{"name": each, "imageID": image_id} for each, image_id in (running or {}).items()]
    document = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "containers": containers,
            "initContainers": None,
            "imagePullSecrets": [{}, {"name": "login"}, {"name": "../x"}],
        },
        "status": {"phase": "Running", "containerStatuses": statuses},
    }
    return decode(json.dumps(document).encode(), PodObject)


def test_the_users_of_an_image_are_counted_and_the_first_named() -> None:
    images = Images()
    for number in range(5):
        images.add_pod(pod("shop", "nginx", "nginx", name=f"web-{number}", running={"c0": f"docker.io/x@{D}"}))
    job = {
        "metadata": {"name": "n", "namespace": "a"},
        "spec": {"jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx"}]}}}}},
    }
    images.add_cron_job(decode(json.dumps(job).encode(), CronJobObject))

    use = images.uses["nginx"]

    assert use.users == (
        "cronjob/n in namespace a, pod/web-0 in namespace shop, pod/web-1 in namespace shop and 3 more"
    )
    assert {digest: number for digest, (number, _) in use.running.items()} == {D: 5}
    assert sorted(use.pulls) == [("a", (), "default"), ("shop", ("login",), "")]


@pytest.mark.parametrize("image_id", ["", D, "docker.io/x@sha256:1", "docker-pullable://nginx", "@"])
def test_an_image_id_without_a_digest_of_a_registry_is_not_compared(image_id: str) -> None:
    images = Images()
    images.add_pod(pod("shop", "nginx", running={"c0": image_id}))
    assert images.uses["nginx"].running == {}


def test_a_namespace_with_very_many_images_leaves_room_for_others() -> None:
    images = Images()
    images.add_pod(pod("a", *(f"app:{number}" for number in range(MOST_OF_NAMESPACE + 7))))
    images.add_pod(pod("b", "other:1", "x" * 1_000_000))

    assert (len(images.uses), dict(images.omitted)) == (MOST_OF_NAMESPACE + 2, {"a": 7})
    assert max(map(len, images.uses)) < 300


def test_namespaces_that_fill_the_limit_of_all_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.core.mirror_audit.image_uses.MOST_IMAGES", 20)
    images = Images()
    for space in ("a", "b"):
        images.add_pod(pod(space, *(f"{space}:{number}" for number in range(10))))
    images.add_pod(pod("shop", *(f"shop:{number}" for number in range(20))))

    spaces = Counter(text.partition(":")[0] for text in images.uses)
    assert len(images.uses) == 20
    assert max(spaces.values()) - min(spaces.values()) <= 2
    assert images.omitted["a"] + images.omitted["b"] + images.omitted["shop"] == 20


def uses(of: Mapping[str, tuple[str, ...]]) -> tuple[dict[str, Image], dict[str, Use]]:
    """Return images by their text, and their uses by these namespaces."""
    parsed = {text: parse_image(text) for text in of}
    return {text: each for text, each in parsed.items() if each}, {
        text: Use(namespaces=set(namespaces)) for text, namespaces in of.items()
    }


@pytest.mark.parametrize("step", [1, 2, 3, 4, 7, 12, 96, 672])
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 6, 8, 12, 96])
def test_each_part_has_its_turn_whatever_the_schedule(parts: int, step: int) -> None:
    start = 1_980_000
    first = [part_of(start * parts + number, parts) for number in range(parts)]
    seen = Counter(part_of(start + step * number, parts) for number in range(12 * parts))

    assert sorted(first) == list(range(parts)), "in runs that follow each other, each once"
    assert len(seen) == parts


def test_all_images_are_checked_in_turn_and_never_more_than_the_limit() -> None:
    images, of = uses({f"quay.io/app:{number}": ("shop",) for number in range(95)})
    runs = [choose(images, of, 10, turn) for turn in range(1000, 1010)]
    assert [len(each) <= 10 for each in runs] == 10 * [True]
    assert sorted(text for each in runs for text in each) == sorted(images)


def test_a_namespace_with_many_images_does_not_delay_those_of_others() -> None:
    few = {f"quay.io/shop:{number}": ("shop", "flood") for number in range(5)}
    images, of = uses({**few, **{f"quay.io/flood:{number}": ("flood",) for number in range(900)}})

    for turn in range(20):
        chosen = choose(images, of, 10, turn)
        assert len(chosen) == 10
        assert set(few) <= set(chosen)


def test_namespaces_share_all_checks_of_a_run() -> None:
    images, of = uses({f"quay.io/app-{team}:{number}": (f"team-{team}",) for team in range(26) for number in range(4)})
    runs = [choose(images, of, 50, turn) for turn in range(4)]
    assert [len(each) for each in runs] == 4 * [50]
    numbers = Counter(text.partition(":")[0] for text in runs[0])
    assert Counter(numbers.values()) == {2: 24, 1: 2}
    assert {text for each in runs for text in each} == {*images}


def test_more_namespaces_than_checks_take_turns() -> None:
    images, of = uses({f"quay.io/app:{number}": (f"team-{number % 30}",) for number in range(60)})
    # Three parts of the namespaces, and of each namespace one image after the other.
    runs = [choose(images, of, 10, turn) for turn in range(6)]
    assert {len(each) for each in runs} == {10}
    assert sorted(text for each in runs for text in each) == sorted(images)


def test_a_namespace_with_many_registries_does_not_delay_those_of_others() -> None:
    images, of = uses(
        {
            **{f"r{number}.example.com/app:1": ("flood",) for number in range(500)},
            **{f"{host}/app:1": ("shop",) for host in ("quay.io", "ghcr.io", "docker.io")},
        }
    )
    seen: set[str] = set()
    for turn in range(40):
        chosen = choose(images, of, 10, turn)
        assert len(chosen) == MOST_REGISTRIES
        assert {"quay.io/app:1", "ghcr.io/app:1", "docker.io/app:1"} <= set(chosen[:7])
        seen |= set(chosen)
    assert len(seen) > 490


def test_the_same_images_in_any_order_give_the_same_choice() -> None:
    images, of = uses({f"quay.io/app:{number}": (f"team-{number % 7}",) for number in range(60)})
    backwards = dict(reversed(images.items()))
    assert [*backwards] != [*images]
    assert choose(images, of, 10, 5) == choose(backwards, of, 10, 5)
