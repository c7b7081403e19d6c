"""A cluster of the inventory that an attacker controls, beside an honest one: only its own copies suffer."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from jobs import sync_copies_clusters as clusters_command
from jobs.kit.run import clusters
from kubesandbox import Sandbox
from tests import embedded
from tests.api.conftest import Ran, Run, runs
from tests.apis import Api, Object, sandbox_api
from tests.canary import canary, leaks
from tests.hostile_clusters import (
    JSON,
    UID,
    Asked,
    Attack,
    HostileCluster,
    Reply,
    as_a_small_cluster,
    bomb,
    failure,
    hostile_cluster,
    kubeconfig,
    listing,
    measured,
    namespace,
    reply,
)
from tests.hostile_text import HOSTILE, left_in
from tests.sandbox.conftest import Limit
from tests.wire import Recorder
from tests.worlds import at, configmap, content, encoded, namespace_object, rule, secret

MIB = 1 << 20
LIMIT = 384 * MIB  # of the CronJob
TEAMS = ("team-a", "team-b")


@dataclass
class Fleet:
    """A hub with a rule for each type of copies, an honest cluster, and a hostile one with the attack of a test."""

    hub: Api
    honest: Api
    sources: Sequence[Object]
    folder: Path
    stack: ExitStack
    run: Run
    hostile: HostileCluster | None = None

    @property
    def uid(self) -> str:
        """The uid of the hub."""
        return uid_of(self.hub)

    def add(self, name: str, config: str) -> None:
        """Add a cluster to the inventory."""
        made = secret("kube-chores", name, labels={"kubechores.dev/cluster": "true"}, data={"value": encoded(config)})
        self.hub.create(made)

    def attack(self, attack: Attack, name: str = "hostile") -> HostileCluster:
        """Add a hostile cluster."""
        cluster = self.stack.enter_context(hostile_cluster(attack, canary()))
        self.add(name, cluster.kubeconfig())
        self.hostile = cluster
        return cluster

    def push(self, *arguments: str, **given: Any) -> Ran:
        """Run the command with the rights of the shipped account; check that only the hostile cluster suffered."""
        self.hub.mark()
        ran = self.run("-n", "kube-chores", "--clusters", "*", *arguments, **given)
        assert left_in(ran.stdout + ran.stderr) == []
        assert [each for each in self.hub.writes() if not is_of_statuses(each.path)] == []
        assert {each.user for each in self.hub.log_since(0) if each.user_agent.startswith("kube-chores")} <= {ACCOUNT}
        return ran

    def copies(self) -> list[bool]:
        """Whether each copy in the honest cluster is as its source."""
        return [content(self.honest.get(at(team, each))) == content(each) for each in self.sources for team in TEAMS]


ACCOUNT = "system:serviceaccount:kube-chores:sync-copies-clusters"


def uid_of(api: Api) -> str:
    return str(api.read(namespace_object("kube-system"))["metadata"]["uid"])


def is_of_statuses(path: str) -> bool:
    return (
        path.startswith("/apis/kubechores.dev/v1/namespaces/kube-chores/copyrators/") and path.endswith("/status")
    ) or (path == "/api/v1/namespaces/kube-chores/events")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """A hub and an honest cluster, with sources that were not copied yet."""
    with ExitStack() as stack:
        apis = []
        for name in ("hub", "honest"):
            folder = tmp_path / name
            folder.mkdir()
            sandbox = stack.enter_context(Sandbox(of=embedded.installed(), tls=name == "honest"))
            apis.append((sandbox, sandbox_api(sandbox, folder)))
        (_, hub), (there, honest) = apis
        for team in TEAMS:
            honest.create(namespace_object(team))
        hub.create(namespace_object("home"))
        sources = [hub.create(configmap("home")), hub.create(secret("home"))]
        for each in sources:
            made = rule(each["metadata"]["name"], "home", "team-*", ruleType=each["kind"].lower())
            made["spec"]["targets"]["clusters"] = {}
            hub.create(made)
        account = hub.service_account_kubeconfig("kube-chores", "sync-copies-clusters")
        fleet = Fleet(hub, honest, sources, tmp_path, stack, runs("sync-copies", account))
        token = honest.service_account_token("kube-chores", "sync-copies-hub")
        fleet.add("honest", kubeconfig(there.url, there.authority, token))
        yield fleet


@pytest.fixture(autouse=True)
def limits(limit: Limit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorter limits, so that a run with an endless answer ends soon."""
    limit(request_seconds=3.0, retry_seconds=1.0)
    monkeypatch.setattr(clusters, "CLUSTER_SECONDS", 8.0)
    monkeypatch.setattr(clusters, "MOST_OBJECTS", 5000)


def about_hostile(ran: Ran) -> set[str]:
    """The codes of the findings about the hostile cluster."""
    found = [each for each in ran.results if each.get("cluster") == "hostile" or each["object"]["name"] == "hostile"]
    return {each["code"] if each["outcome"] == "reported" else each["outcome"] for each in found}


def test_a_small_cluster_that_does_not_attack_gets_copies(fleet: Fleet) -> None:
    cluster = fleet.attack(lambda _asked: None)

    ran = fleet.push()

    assert (ran.exit_code, ran.summary, all(fleet.copies())) == (0, {"created": 8}, True), ran.results
    assert Counter(each.path for each in cluster.asked if each.is_write) == {
        f"/api/v1/namespaces/{team}/{plural}": 1 for team in TEAMS for plural in ("configmaps", "secrets")
    }


# Attacks: the name, the attack, the codes of findings about the cluster, and the exit code.


def on_lists(answer: Callable[[Asked], Reply], plural: str = "", *, ask: bool = True) -> Attack:
    """Attack lists: of this resource or of all, with or without that of namespace kube-system alone."""

    def attack(asked: Asked) -> Reply | None:
        is_first = "fieldSelector" in asked.query
        matches = asked.is_list and asked.path.endswith(plural or "s") and (ask or not is_first)
        return answer(asked) if matches else None

    return attack


def on_writes(answer: Callable[[Asked], Reply]) -> Attack:
    return lambda asked: answer(asked) if asked.is_write else None


def items(asked: Asked, number: int = 500) -> Iterator[Object]:
    """Objects with names that no other page has, with the labels of copies."""
    labels = dict(each.split("=") for each in asked.query.get("labelSelector", "a=b").split(",") if "=" in each)
    for index in range(number):
        name = f"n-{asked.page}-{index}"
        metadata = {"name": name, "uid": UID, "resourceVersion": "1", "labels": labels}
        place = {} if asked.path.endswith("/namespaces") else {"namespace": "team-a"}
        yield {"metadata": {**metadata, **place}, "status": {"phase": "Active"}}


def next_page(asked: Asked, found: Sequence[object] = (), filler: str = "") -> Reply:
    return reply(listing(asked, found, filler + str(asked.page + 1)))


def endless(asked: Asked) -> Reply:
    return next_page(asked, list(items(asked)))


def empty_pages(asked: Asked) -> Reply:
    return next_page(asked)


def the_same_page(asked: Asked) -> Reply:
    return reply(listing(asked, items(asked), "7"))


def expired(asked: Asked) -> Reply:
    return next_page(asked, list(items(asked))) if asked.page < 3 else reply(failure(410, "expired", "Expired"), 410)


def large_page(asked: Asked) -> Reply:
    def parts() -> Iterator[bytes]:
        yield json.dumps(listing(asked, ())).encode()[:-2]
        yield b'{"metadata":{"name":"a"}}'
        for _ in range(100):
            yield b',{"metadata":{"name":"a"}}' * (MIB // 26)
        yield b"]}"

    return Reply(body=parts())


BOMB = {**JSON, "Content-Encoding": "gzip"}


def page_bomb(asked: Asked) -> Reply:
    return Reply(body=bomb(json.dumps(listing(asked, ())).encode(), 300), headers=BOMB)


def pods(asked: Asked) -> Reply:
    return reply({**listing(asked, ()), "kind": "PodList", "apiVersion": "v1"})


def with_items(*found: object) -> Callable[[Asked], Reply]:
    return lambda asked: reply(listing(asked, [namespace("kube-system"), namespace("team-a"), *found]))


STRANGE_NAMES = [HOSTILE, "", ".", "..", "a/b", "../../default/secrets", "a?b=c", "%2e%2e", "x" * MIB, "A", "ü", "\0"]


def strange_namespaces(asked: Asked) -> Reply:
    return with_items(*map(namespace, STRANGE_NAMES))(asked)


def strange_copies(asked: Asked) -> Reply:
    found = list(items(asked, len(STRANGE_NAMES)))
    for each, name in zip(found, STRANGE_NAMES, strict=True):
        each["metadata"] |= {"name": name, "namespace": name}
    return reply(listing(asked, found))


def foreign_objects(asked: Asked) -> Reply:
    """Objects without the labels of the request, of other kinds and namespaces."""
    at_home = {"name": "x", "namespace": "kube-system", "uid": UID, "resourceVersion": "1"}
    found = [
        {"metadata": at_home, "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1"},
        {"metadata": {**at_home, "namespace": "home", "labels": {"kubechores.dev/job": "other"}}},
        {"metadata": {**at_home, "namespace": "", "name": "cluster"}},
    ]
    return reply(listing(asked, found))


def deep(asked: Asked) -> Reply:
    value = b"[" * 100_000 + b"]" * 100_000
    page = json.dumps(listing(asked, ({"metadata": {"name": "kube-system", "uid": UID, "labels": "DEEP"}},))).encode()
    return Reply(body=page.replace(b'"DEEP"', value))


def values_of_other_types(asked: Asked) -> Reply:
    strange: list[Any] = [None, 3, "x", [], {}, {"metadata": None}, {"metadata": {"name": None}}]
    strange += [{"metadata": {"name": "a", "labels": [1]}}, {"metadata": {"name": "b", "annotations": "x"}}]
    strange += [{"metadata": {"name": "c", "managedFields": {}}}, {"metadata": {"name": "d"}, "status": None}]
    return with_items(*strange)(asked)


def silence(_asked: Asked) -> Reply:
    def parts() -> Iterator[bytes]:
        Event().wait(60)
        yield b""

    return Reply(body=parts(), is_raw=True)


def drip(asked: Asked) -> Reply:
    def parts() -> Iterator[bytes]:
        yield json.dumps(listing(asked, ())).encode()[:-2]
        while not Event().wait(0.05):
            yield b" "

    return Reply(body=parts())


def drip_of_headers(_asked: Asked) -> Reply:
    def parts() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n"
        number = 0
        while not Event().wait(0.02):
            number += 1
            yield f"X-{number}: y\r\n".encode()

    return Reply(body=parts(), is_raw=True)


def raw(*parts: bytes) -> Callable[[Asked], Reply]:
    return lambda _asked: Reply(body=list(parts), is_raw=True)


def many_headers(_asked: Asked) -> Reply:
    def parts() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n"
        for number in range(200_000):
            yield f"X-{number}: {'y' * 1000}\r\n".encode()

    return Reply(body=parts(), is_raw=True)


def continues(_asked: Asked) -> Reply:
    def parts() -> Iterator[bytes]:
        while True:
            yield b"HTTP/1.1 100 Continue\r\n\r\n" * 100

    return Reply(body=parts(), is_raw=True)


def as_a_page(_asked: Asked) -> Reply:
    return Reply(200, b"<html>log in</html>", {"Content-Type": "text/html"})


def html_of_json(asked: Asked) -> Reply:
    return replace(as_a_small_cluster(asked), headers={"Content-Type": "text/html; charset=utf-16"})


def throttled(_asked: Asked) -> Reply:
    return reply(failure(429, "slow down"), 429, Retry_After="99999999999999999999")


def throttled_until(_asked: Asked) -> Reply:
    return reply(failure(429, "slow down"), 429, Retry_After="Fri, 31 Dec 9999 23:59:59 GMT")


def quoting(code: int, text: str = HOSTILE) -> Callable[[Asked], Reply]:
    """An error that quotes the token and a text."""
    return lambda asked: reply(failure(code, f"{text} {asked.headers.get('authorization')} {text}"), code)


def quoting_as_text(asked: Asked) -> Reply:
    return Reply(500, f"{asked.headers.get('authorization')} {HOSTILE}".encode(errors="replace"), {})


def quoting_the_body(code: int) -> Callable[[Asked], Reply]:
    return lambda asked: reply(failure(code, f"denied: {asked.body.decode()}"), code)


def long_message(asked: Asked) -> Reply:
    return reply(failure(403, "x" * 10 * MIB), 403)


def conflicts(asked: Asked) -> Reply | None:
    if asked.is_write:
        return reply(failure(409, "conflict", "Conflict"), 409)
    return None


def exists_and_does_not(asked: Asked) -> Reply | None:
    """Creates conflict with an object that does not exist."""
    if asked.is_write:
        return reply(failure(409, "already exists", "AlreadyExists"), 409)
    return None


def other_objects(asked: Asked) -> Reply | None:
    """Each write is answered with another object, and each read too."""
    if asked.is_write or not asked.is_list:
        kind = "Secret" if "/secrets" in asked.path else "ConfigMap"
        metadata = {"name": "other", "namespace": "other", "uid": UID, "resourceVersion": "9"}
        return (
            reply({"apiVersion": "v1", "kind": kind, "metadata": metadata}) if "selfsubject" not in asked.path else None
        )
    return None


def changing_uid() -> Attack:
    seen: list[str] = []

    def attack(asked: Asked) -> Reply | None:
        if not (asked.is_list and asked.path.endswith("/namespaces")):
            return None
        seen.append(asked.path)
        uid = UID if len(seen) < 2 else f"{len(seen):08}-1111-4111-8111-111111111111"
        names = ("kube-system",) if "fieldSelector" in asked.query else ("kube-system", "team-a")
        return reply(listing(asked, [namespace(each, uid) for each in names]))

    return attack


def with_uid(uid: object) -> Attack:
    found = {"metadata": {"name": "kube-system", "uid": uid}, "status": {"phase": "Active"}}
    return on_lists(lambda asked: reply(listing(asked, [found])), "/namespaces")


UNREADABLE, UNREACHABLE, TIMED_OUT = {"unreadable"}, {"unreachable"}, {"timed-out"}
ATTACKS: Mapping[str, tuple[Attack, set[str], int]] = {
    "endless lists": (on_lists(endless), UNREADABLE, 1),
    "endless namespaces": (on_lists(endless, "/namespaces", ask=False), UNREADABLE, 1),
    "endless copies": (on_lists(endless, "/configmaps"), {"unreadable", "done"}, 1),
    "empty pages for ever": (on_lists(empty_pages), TIMED_OUT, 1),
    "empty pages of copies for ever": (on_lists(empty_pages, "/secrets"), TIMED_OUT, 1),
    "the same page for ever": (on_lists(the_same_page), UNREADABLE, 1),
    "lists that expire": (on_lists(expired), UNREADABLE, 1),
    "a page of 100 MB": (on_lists(large_page), UNREADABLE, 1),
    "a bomb": (on_lists(page_bomb), UNREADABLE, 1),
    "a bomb as an error": (
        lambda asked: Reply(403, bomb(b'{"kind":"Status"', 300), BOMB),
        UNREADABLE,
        1,
    ),
    "a list of pods": (on_lists(pods), UNREADABLE, 1),
    "foreign objects": (on_lists(foreign_objects, "/configmaps"), set(), 0),
    "strange namespaces": (on_lists(strange_namespaces, "/namespaces", ask=False), set(), 0),
    "strange copies": (on_lists(strange_copies, "/configmaps"), set(), 0),
    "deep JSON": (on_lists(deep), UNREADABLE, 2),
    "JSON that is deep only": (lambda _asked: Reply(body=b'{"a":' * 500_000), UNREADABLE, 1),
    "values of other types": (on_lists(values_of_other_types, ask=False), set(), 0),
    "metadata of another type": (on_lists(lambda asked: reply({**listing(asked, ()), "metadata": []})), UNREADABLE, 1),
    "no items": (on_lists(lambda asked: reply({**listing(asked, ()), "items": None})), UNREADABLE, 2),
    "a token of a list that is too long for a URL": (
        on_lists(lambda asked: next_page(asked, (), "<" * 3 * MIB)),
        UNREADABLE,
        1,
    ),
    "a long uid": (with_uid("a" * 3 * MIB), UNREADABLE, 2),
    "a uid that is not text": (with_uid(3), UNREADABLE, 2),
    "a uid for terminals": (with_uid(HOSTILE), UNREADABLE, 2),
    "no uid": (with_uid(""), UNREADABLE, 2),
    "a uid that changes": (changing_uid(), UNREADABLE, 2),
    "silence": (silence, UNREADABLE, 1),
    "a byte now and then": (on_lists(drip), UNREADABLE, 1),
    "a header now and then": (drip_of_headers, UNREADABLE, 1),
    "HTTP/0.9": (raw(b"hello"), UNREADABLE, 1),
    "garbage": (raw(bytes(range(256)) * 64), UNREADABLE, 1),
    "no answer": (raw(), UNREADABLE, 1),
    "half of an answer": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), UNREADABLE, 1),
    "two lengths": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 5\r\n\r\n{}{}{}"), UNREADABLE, 1),
    "a negative length": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}"), UNREADABLE, 1),
    "chunks without an end": (
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{"),
        UNREADABLE,
        1,
    ),
    "many headers": (many_headers, UNREADABLE, 1),
    "continue for ever": (continues, UNREADABLE, 1),
    "another protocol": (raw(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nhello"), UNREADABLE, 1),
    "no content": (lambda _asked: Reply(204), UNREADABLE, 1),
    "a page for people": (as_a_page, UNREADABLE, 1),
    "another type of content": (html_of_json, set(), 0),
    "throttled for ever": (throttled, UNREADABLE, 1),
    "throttled until 9999": (throttled_until, UNREADABLE, 1),
    "writes throttled for ever": (on_writes(throttled), {"failed"}, 1),
    "a login": (lambda _asked: reply({}, 401, WWW_Authenticate='Basic realm="x"'), UNREADABLE, 2),
    "a proxy's login": (lambda _asked: reply({}, 407, Proxy_Authenticate="Negotiate"), UNREADABLE, 1),
    "an error for terminals": (on_lists(quoting(500)), UNREADABLE, 1),
    "a refusal with the token": (on_lists(quoting(403)), UNREADABLE, 1),
    "a text with the token": (quoting_as_text, UNREADABLE, 1),
    "writes refused with the token": (on_writes(quoting(422)), {"failed"}, 1),
    "writes refused with what was written": (on_writes(quoting_the_body(422)), {"failed"}, 1),
    "writes that fail with what was written": (on_writes(quoting_the_body(500)), {"failed"}, 1),
    "writes refused at length": (on_writes(long_message), {"failed"}, 1),
    "conflicts for ever": (conflicts, {"failed"}, 0),
    "objects that exist and do not": (exists_and_does_not, {"failed"}, 0),
    "answers with other objects": (other_objects, {"done"}, 0),
    "a time in 9999": (
        lambda asked: replace(as_a_small_cluster(asked), headers={**JSON, "Date": "Fri, 31 Dec 9999 23:59:59 GMT"}),
        set(),
        0,
    ),
    "cookies and other hints": (
        lambda asked: replace(
            as_a_small_cluster(asked),
            headers={
                **JSON,
                "Set-Cookie": "a=b",
                "Alt-Svc": 'h2="127.0.0.1:1"',
                "Strict-Transport-Security": "max-age=9",
            },
        ),
        set(),
        0,
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_harms_no_other_cluster(fleet: Fleet, name: str) -> None:
    attack, codes, exit_code = ATTACKS[name]
    fleet.attack(attack)

    ran = fleet.push()

    assert all(fleet.copies()), ran
    found = about_hostile(ran)
    assert (ran.exit_code, codes <= found or (not codes and not found & {"unreadable", "failed"})) == (
        exit_code,
        True,
    ), (
        found,
        ran.stdout[:3000],
        ran.stderr[:3000],
    )


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("which", ["lists", "writes"])
def test_redirects_are_not_followed(fleet: Fleet, server: Recorder, status: int, which: str) -> None:
    targets = [fleet.hub.url, f"http://127.0.0.1:{server.port}", "file:///etc/passwd"]

    def redirect(asked: Asked) -> Reply:
        location = f"{targets[len(asked.path) % len(targets)]}{asked.path}"
        return Reply(status, b"", {"Location": location})

    fleet.attack(on_lists(redirect) if which == "lists" else on_writes(redirect))

    ran = fleet.push()

    assert (ran.exit_code, all(fleet.copies())) == (1, True), ran
    assert server.requests == []


def test_a_cluster_with_the_uid_of_the_hub_gets_nothing(fleet: Fleet) -> None:
    cluster = fleet.attack(with_uid(fleet.uid))

    ran = fleet.push()

    assert (ran.exit_code, about_hostile(ran), all(fleet.copies())) == (2, {"duplicate"}, True)
    assert [each for each in cluster.asked if each.is_write] == []


def test_a_cluster_that_takes_the_uid_of_another_one_does_not_stop_its_copies(fleet: Fleet) -> None:
    uid: list[str] = [UID]
    cluster = fleet.attack(lambda asked: with_uid(uid[0])(asked))
    fleet.push()
    uid[0] = uid_of(fleet.honest)
    cluster.asked.clear()
    changed = fleet.hub.patch(fleet.sources[0], {"data": {"a": "changed"}})

    ran = fleet.push()

    assert content(fleet.honest.get(at("team-a", changed))) == content(changed), ran
    assert (ran.exit_code, about_hostile(ran)) == (2, {"duplicate"})
    assert [each for each in cluster.asked if each.is_write] == []


def test_a_new_cluster_with_the_uid_of_a_known_one_does_not_stop_its_copies(fleet: Fleet) -> None:
    fleet.push()
    cluster = fleet.attack(with_uid(uid_of(fleet.honest)))
    changed = fleet.hub.patch(fleet.sources[0], {"data": {"a": "changed"}})

    ran = fleet.push()

    assert content(fleet.honest.get(at("team-a", changed))) == content(changed), ran
    assert (ran.exit_code, about_hostile(ran)) == (2, {"duplicate"})
    assert [each for each in cluster.asked if each.is_write] == []


def test_an_error_that_quotes_what_another_request_wrote_shows_no_value(fleet: Fleet) -> None:
    fleet.hub.create(secret("home", "other"))
    written: list[bytes] = []

    def attack(asked: Asked) -> Reply | None:
        if not asked.is_write:
            return None
        written.append(asked.body)
        return reply(failure(422, b" ".join(written).decode()), 422)

    fleet.attack(attack)

    ran = fleet.push()

    assert (ran.exit_code, all(fleet.copies())) == (1, True)
    assert leaks(ran.stdout + ran.stderr) == []


@pytest.mark.parametrize("output", ["text", "yaml"])
def test_errors_are_escaped_in_each_output(fleet: Fleet, output: str) -> None:
    fleet.attack(quoting_as_text)

    ran = fleet.push(output=output)

    assert ran.exit_code == 1
    assert "hostile" in ran.stdout


def test_statuses_and_events_have_no_text_of_a_cluster(fleet: Fleet) -> None:
    fleet.attack(on_lists(quoting(500, "quoted")))

    fleet.push()

    rules = fleet.hub.items("kubechores.dev/v1", "CopyratorRule", "kube-chores")
    assert "quoted" not in json.dumps([each["status"] for each in rules])
    assert "quoted" not in json.dumps(fleet.hub.events())
    assert {each["reason"] for one in rules for each in one["status"]["clusters"]} == {"Synced", "Unreadable"}


def test_copies_are_in_other_clusters_while_one_does_not_answer(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that is silent from its first request on delays no other: the honest one has its copies before."""
    monkeypatch.setattr(clusters, "ASK_SECONDS", 2.0)
    found: list[bool] = []
    has_looked = Event()

    def attack(_asked: Asked) -> Reply:
        def parts() -> Iterator[bytes]:
            tries = 400
            while not all(fleet.copies()) and tries:
                tries -= 1
                Event().wait(0.05)
            found.append(tries > 0)
            has_looked.set()
            yield b""

        return Reply(body=parts(), is_raw=True)

    fleet.attack(attack)
    ran = fleet.push()

    assert has_looked.wait(30), ran  # the run does not wait for it
    assert found[0], ran


def test_a_cluster_with_a_bug_of_ours_does_not_end_the_others(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an answer triggers, statuses are written and other clusters get their copies."""
    cluster = fleet.attack(lambda _asked: None)
    uid_of = vars(clusters_command)["uid_of"]

    def failing(asked: Any) -> str:
        if asked.transport.endpoint.server == cluster.url:
            raise KeyError("a bug")
        return str(uid_of(asked))

    monkeypatch.setattr(clusters_command, "uid_of", failing)

    ran = fleet.push()

    assert (ran.exit_code, all(fleet.copies())) == (1, True)


# Tenants


def filled(namespace: str) -> Iterator[Object]:
    """Sources of a tenant that leave no room for others: large ones first, then smaller ones."""
    number = 0
    for size, count in ((900_000, 18), (100_000, 6), (10_000, 10), (1000, 10), (1, 8)):
        for _ in range(count):
            yield configmap(namespace, f"s-{number:03}", data={"a": f"{number:03}".ljust(size, "x")})
            number += 1


def test_large_sources_of_a_tenant_of_the_hub_do_not_stop_the_copies_of_others(fleet: Fleet) -> None:
    fleet.push()
    fleet.hub.create(namespace_object("a-tenant"))
    for each in filled("a-tenant"):
        fleet.hub.create(each)
    made = rule("a-tenant", "a-tenant", "team-a")
    made["spec"]["targets"]["clusters"] = {}
    fleet.hub.create(made)
    changed = fleet.hub.patch(fleet.sources[0], {"data": {"a": "changed"}})

    ran = fleet.push()

    assert content(fleet.honest.get(at("team-a", changed))) == content(changed), ran.stdout[:3000]


def test_conflicts_in_two_clusters_are_reported_for_each(fleet: Fleet) -> None:
    mine = configmap("team-a", labels={})
    fleet.honest.create(mine)

    def attack(asked: Asked) -> Reply | None:
        if asked.method == "POST" and asked.path.endswith("team-a/configmaps"):
            return reply(failure(409, "exists", "AlreadyExists"), 409)
        if asked.method == "GET" and asked.path.endswith("team-a/configmaps/settings"):
            head = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}
            return reply({**head, "metadata": {**mine["metadata"], "uid": UID, "resourceVersion": "1"}})
        return None

    fleet.attack(attack)

    ran = fleet.push()

    found = [each.get("cluster") for each in ran.results if each["code"] == "conflict"]
    assert sorted(found, key=str) == ["honest", "hostile"], ran.stdout[:3000]


# Memory


def unique(asked: Asked, number: int, width: int) -> list[Object]:
    """Objects with labels and annotations of `width` characters that no other object has."""
    found = list(items(asked, number))
    for index, each in enumerate(found):
        text = f"{asked.page}-{index}-".ljust(width, "x")
        each["metadata"]["annotations"] = {"kubechores.dev/source": text}
        each["metadata"]["finalizers"] = [text]
    return found


def long_names(asked: Asked) -> Reply:
    found = list(items(asked, 3))
    for each in found:
        each["metadata"]["name"] += "x" * MIB
    return next_page(asked, found)


def long_uids(asked: Asked) -> Reply:
    found = list(items(asked, 3))
    for each in found:
        each["metadata"]["uid"] += f"{asked.page}" + "x" * MIB
    return next_page(asked, found)


def invalid_objects(asked: Asked) -> Reply:
    found = list(items(asked))
    for each in found:
        each["metadata"]["labels"] = {"a": 3}
        each["metadata"]["managedFields"] = 3
    return next_page(asked, found)


def long_answer(_asked: Asked) -> Reply:
    return Reply(201, b'{"apiVersion":"v1","kind":"ConfigMap"' + b" " * 11 * MIB + b"}")


def long_answers(namespaces: int, answer: Callable[[Asked], Reply]) -> Attack:
    """Many namespaces, and each write is answered at length."""

    def attack(asked: Asked) -> Reply | None:
        if asked.is_write:
            return answer(asked)
        if asked.is_list and asked.path.endswith("/namespaces") and "fieldSelector" not in asked.query:
            teams = (namespace(f"team-{number}") for number in range(namespaces))
            return reply(listing(asked, [namespace("kube-system"), *teams]))
        return None

    return attack


def many_namespaces() -> Attack:
    """As many namespaces as a list may have, which a rule selects."""

    def more(asked: Asked) -> Reply:
        found = list(items(asked))
        for index, each in enumerate(found):
            each["metadata"]["name"] = f"team-{asked.page}-{index}"
        return next_page(asked, found)

    pages = fast(more)

    def attack(asked: Asked) -> Reply | None:
        if not (asked.is_list and asked.path.endswith("/namespaces")) or "fieldSelector" in asked.query:
            return None
        last = reply(listing(asked, [namespace("kube-system")]))
        return pages(asked) if asked.page < 399 else last

    return attack


def many_copies() -> Attack:
    """As many copies as a list may have, which no rule requires."""
    pages = fast(endless)
    return on_lists(lambda asked: pages(asked) if asked.page < 399 else reply(listing(asked, ())), "/configmaps")


def fast(answer: Callable[[Asked], Reply]) -> Callable[[Asked], Reply]:
    """Answer with the JSON of the first page, in which each number of that page is that of the requested one."""
    made: list[bytes] = []

    def page(asked: Asked) -> Reply:
        if not made:
            first = answer(replace(asked, query={**asked.query, "continue": "7770777"})).body
            assert isinstance(first, bytes)
            made.append(first.replace(b'"7770778"', b'"NEXT"'))
        body = made[0].replace(b"7770777", f"{asked.page:07}".encode())
        return Reply(body=body.replace(b'"NEXT"', f'"{asked.page + 1}"'.encode()))

    return page


IN_MEMORY = [
    pytest.param(
        on_lists(fast(lambda asked: next_page(asked, unique(asked, 500, 3000))), "/configmaps"),
        60.0,
        id="endless copies, all different",
    ),
    pytest.param(many_namespaces(), 60.0, id="as many namespaces as possible"),
    pytest.param(many_copies(), 60.0, id="as many copies as possible"),
    pytest.param(on_lists(fast(invalid_objects), "/configmaps"), 60.0, id="endless objects that are not valid"),
    pytest.param(on_lists(fast(long_names), "/namespaces", ask=False), 8.0, id="endless long names of namespaces"),
    pytest.param(on_lists(fast(long_names), "/configmaps"), 8.0, id="endless long names of copies"),
    pytest.param(on_lists(fast(long_uids), "/namespaces"), 8.0, id="endless long uids"),
    pytest.param(long_answers(200, long_message), 20.0, id="writes refused at length"),
    pytest.param(long_answers(200, long_answer), 20.0, id="writes answered at length"),
    pytest.param(on_lists(large_page), 8.0, id="a page of 100 MB"),
    pytest.param(on_lists(page_bomb), 8.0, id="a bomb"),
]


@pytest.mark.parametrize(("attack", "seconds"), IN_MEMORY)
def test_an_attack_does_not_take_the_memory_of_the_run(fleet: Fleet, attack: Attack, seconds: float) -> None:
    fleet.attack(attack)
    account = fleet.hub.service_account_kubeconfig("kube-chores", "sync-copies-clusters")

    ran = measured(["-n", "kube-chores", "--clusters", "*"], account, fleet.folder, seconds)

    print(f"{ran.peak / MIB:.0f} MiB")  # noqa: T201
    assert all(fleet.copies()), ran.output[:2000]
    assert ran.peak < LIMIT
