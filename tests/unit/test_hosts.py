"""The folder, the content and the owner of hosts.toml."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.mirror_node.hosts import (
    compare,
    folders,
    hosts_toml,
    is_host,
    is_name,
    is_server,
    written_for,
)

MIRROR, UPSTREAM = "http://10.0.0.7:5000", "https://registry-1.docker.io"
PULLS = {"capabilities": ["pull", "resolve"], "dial_timeout": "2s"}
LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
HOST_NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join)
PORTS = st.integers(1, 65535).map(lambda port: f":{port}")
HOSTS = st.builds(str.__add__, HOST_NAMES, st.just("") | PORTS)
PATHS = st.from_regex(r"(/[-A-Za-z0-9._~%+@,;=:]*){0,3}", fullmatch=True)
URLS = st.builds("{}://{}{}".format, st.sampled_from(["http", "https"]), HOSTS | st.just("[fd00::7]:5000"), PATHS)


def read(text: str) -> Any:
    tomllib = pytest.importorskip("tomllib", reason="Python reads TOML since 3.11")
    return tomllib.loads(text)


def test_containerd_pulls_from_the_mirror_first_and_then_from_the_upstream_if_there_is_one() -> None:
    assert read(hosts_toml("hub", MIRROR, UPSTREAM)) == {"server": UPSTREAM, "host": {MIRROR: PULLS}}
    assert read(hosts_toml("hub", MIRROR)) == {"server": MIRROR, "host": {MIRROR: PULLS}}


@given(name=LABELS, mirror=URLS, upstream=URLS)
def test_a_written_file_parses_to_its_parameters(name: str, mirror: str, upstream: str) -> None:
    text = hosts_toml(name, mirror, upstream)

    assert is_name(name) and is_server(mirror) and is_server(upstream)
    found = read(text)
    assert (found["server"], list(found["host"])) == (upstream, [mirror])
    assert written_for(text) == name


@given(host=HOSTS)
def test_the_folders_of_a_host_have_valid_names(host: str) -> None:
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


INVALID_NAMES = ("", ".", "..", "_default", "a/b", "../etc", "/etc", "a..b", "-a", "a-", "A.io", "a b", "a\n", '"')
INVALID_PORTS = ("a:0", "a:65536", "a:", ":1", "a:1\n", "a:1:2", "[::1]")
NO_HOSTS = ("a\\b", "a\0", "ä.de", "https://a.io", "user@a.io", "a" * 64)


@pytest.mark.parametrize("host", [*INVALID_NAMES, *INVALID_PORTS, *NO_HOSTS])
def test_an_invalid_host_is_rejected(host: str) -> None:
    assert not is_host(host)


NO_HTTP = ("", "a.io", "ftp://a.io", "file:///etc", "HTTP://a", "http://", "http:///a", "http://ä.de", "http://[::1")
DROPPED = ("http://u:p@a.io", "http://u@a.io", "http://a?b", "http://a#b")
UNQUOTED = ('http://a"', "http://a\\b", "http://a b", "http://a\n", "http://a/'")


@pytest.mark.parametrize("url", [*NO_HTTP, *DROPPED, *UNQUOTED, "http://a:0", "http://a:b", "http://a:65536"])
def test_an_invalid_server_is_rejected(url: str) -> None:
    assert not is_server(url)


@pytest.mark.parametrize("name", ["", "a.b", "A", "-a", "a-", "a\n", "a b", "a:"])
def test_an_invalid_name_is_rejected(name: str) -> None:
    assert not is_name(name)


OWN = hosts_toml("hub", MIRROR, UPSTREAM)
OF_ANOTHER = hosts_toml("other", MIRROR, UPSTREAM)
OTHER_TOOL = 'server = "https://registry-1.docker.io"\n'


@pytest.mark.parametrize(
    ("found", "desired", "is_correctable", "problem"),
    [
        (None, OWN, True, "does not exist"),
        (OWN, OWN, False, ""),
        (OWN + "\n", OWN, True, "differs from its desired content"),
        (OWN.splitlines()[0], OWN, True, "differs from its desired content"),
        (hosts_toml("hub", MIRROR), OWN, True, "differs from its desired content"),
        (OF_ANOTHER, OWN, True, "was written for registrymirror other"),
        (OTHER_TOOL, OWN, False, "was not written by kube-chores"),
        ("", OWN, False, "was not written by kube-chores"),
        ("\n" + OWN, OWN, False, "was not written by kube-chores"),
        (None, None, False, ""),
        (OWN, None, True, "still exists"),
        (OWN + "edited", None, True, "still exists"),
        (OF_ANOTHER, None, False, ""),
        (OTHER_TOOL, None, False, ""),
        ("", None, False, ""),
    ],
)
def test_a_file_is_compared_with_its_desired_content(
    found: str | None, desired: str | None, is_correctable: bool, problem: str
) -> None:
    compared = compare(found, desired, "hub")

    assert compared.is_correctable is is_correctable
    assert compared.problem.startswith(problem) and bool(compared.problem) == bool(problem)
