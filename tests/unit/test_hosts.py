"""What hosts.toml says, where it is, and whose it is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.mirrors.hosts import Todo, compare, folders, hosts_toml, is_host, is_name, is_server, written_for

MIRROR, UPSTREAM = "http://10.0.0.7:5000", "https://registry-1.docker.io"
LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
HOST_NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join)
PORTS = st.integers(1, 65535).map(lambda port: f":{port}")
HOSTS = st.builds(str.__add__, HOST_NAMES, st.just("") | PORTS)
PATHS = st.from_regex(r"(/[-A-Za-z0-9._~%+@,;=:]*){0,3}", fullmatch=True)
URLS = st.builds("{}://{}{}".format, st.sampled_from(["http", "https"]), HOSTS | st.just("[fd00::7]:5000"), PATHS)


def read(text: str) -> Any:
    tomllib = pytest.importorskip("tomllib", reason="Python reads TOML since 3.11")
    return tomllib.loads(text)


def test_the_mirror_is_asked_first_and_then_the_upstream() -> None:
    assert read(hosts_toml("hub", MIRROR, UPSTREAM)) == {
        "server": UPSTREAM,
        "host": {MIRROR: {"capabilities": ["pull", "resolve"], "dial_timeout": "2s"}},
    }


def test_without_an_upstream_only_the_mirror_is_asked() -> None:
    assert read(hosts_toml("hub", MIRROR)) == {
        "server": MIRROR,
        "host": {MIRROR: {"capabilities": ["pull", "resolve"], "dial_timeout": "2s"}},
    }


@given(name=LABELS, mirror=URLS, upstream=URLS)
def test_what_goes_in_comes_out(name: str, mirror: str, upstream: str) -> None:
    text = hosts_toml(name, mirror, upstream)

    assert is_name(name) and is_server(mirror) and is_server(upstream)
    found = read(text)
    assert (found["server"], list(found["host"])) == (upstream, [mirror])
    assert written_for(text) == name


@given(host=HOSTS)
def test_a_host_has_folders_of_its_own(host: str) -> None:
    assert is_host(host)
    for folder in folders(host):
        assert "/" not in folder and folder not in ("", ".", "..", "_default")


@given(one=HOSTS, other=HOSTS)
def test_no_two_hosts_share_a_folder(one: str, other: str) -> None:
    assert one == other or not {*folders(one)} & {*folders(other)}


@pytest.mark.parametrize(
    ("host", "tried"),
    [
        ("docker.io", ("docker.io",)),
        ("registry.example.com:5000", ("registry.example.com_5000_", "registry.example.com:5000")),
        ("10.88.0.1:5000", ("10.88.0.1_5000_", "10.88.0.1:5000")),
    ],
)
def test_containerd_tries_these_folders(host: str, tried: tuple[str, ...]) -> None:
    assert folders(host) == tried


NO_NAME = (
    "",
    ".",
    "..",
    "_default",
    "a/b",
    "../etc",
    "/etc",
    "a..b",
    "-a",
    "a-",
    "A.io",
    "a b",
    "a\n",
    '"',
    "a\\b",
    "a\0",
)
NO_PORT = ("a:0", "a:65536", "a:", ":1", "a:1\n", "a:1:2", "[::1]")


@pytest.mark.parametrize("host", [*NO_NAME, *NO_PORT, "ä.de", "https://a.io", "user@a.io", "a" * 64])
def test_no_host(host: str) -> None:
    assert not is_host(host)


ELSEWHERE = ("", "a.io", "ftp://a.io", "file:///etc", "HTTP://a", "http://", "http:///a", "http://ä.de", "http://[::1")
DROPPED = ("http://u:p@a.io", "http://u@a.io", "http://a?b", "http://a#b")
UNQUOTED = ('http://a"', "http://a\\b", "http://a b", "http://a\n", "http://a/'")


@pytest.mark.parametrize("url", [*ELSEWHERE, *DROPPED, *UNQUOTED, "http://a:0", "http://a:b", "http://a:65536"])
def test_no_server(url: str) -> None:
    assert not is_server(url)


@pytest.mark.parametrize("name", ["", "a.b", "A", "-a", "a-", "a\n", "a b", "a:"])
def test_no_name(name: str) -> None:
    assert not is_name(name)


OURS = hosts_toml("hub", MIRROR, UPSTREAM)
OF_ANOTHER = hosts_toml("other", MIRROR, UPSTREAM)
THEIRS = 'server = "https://registry-1.docker.io"\n'


@pytest.mark.parametrize(
    ("found", "wanted", "todo", "problem"),
    [
        (None, OURS, Todo.WRITE, "is not there"),
        (OURS, OURS, Todo.NOTHING, ""),
        (OURS + "\n", OURS, Todo.WRITE, "is not as it should be"),
        (OURS.splitlines()[0], OURS, Todo.WRITE, "is not as it should be"),
        (hosts_toml("hub", MIRROR), OURS, Todo.WRITE, "is not as it should be"),
        (OF_ANOTHER, OURS, Todo.WRITE, "is that of registrymirror other"),
        (THEIRS, OURS, Todo.NOTHING, "was not written by kube-chores"),
        ("", OURS, Todo.NOTHING, "was not written by kube-chores"),
        ("\n" + OURS, OURS, Todo.NOTHING, "was not written by kube-chores"),
        (None, None, Todo.NOTHING, ""),
        (OURS, None, Todo.REMOVE, "is still there"),
        (OURS + "edited", None, Todo.REMOVE, "is still there"),
        (OF_ANOTHER, None, Todo.NOTHING, ""),
        (THEIRS, None, Todo.NOTHING, ""),
        ("", None, Todo.NOTHING, ""),
    ],
)
def test_what_is_to_do(found: str | None, wanted: str | None, todo: Todo, problem: str) -> None:
    verdict = compare(found, wanted, "hub")

    assert verdict.todo is todo
    assert verdict.problem.startswith(problem) and bool(verdict.problem) == bool(problem)
