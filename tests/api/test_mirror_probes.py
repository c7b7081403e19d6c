"""Mirrors and upstreams that accept connections and never respond: writes and reports of a run with them."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from jobs.core.mirror_audit.desired import Mirror
from jobs.kit import web
from jobs.kit.run import runner
from tests.api.conftest import Ran, Run
from tests.apis import GIVE_UP_SECONDS, Api, Object, wait_for
from tests.manifests import ROOT
from tests.mirrors import NAMESPACE, Mirrors
from tests.rates import status
from tests.registries import Registries

pytestmark = pytest.mark.usefixtures("no_pauses")


@dataclass
class SilentServer:
    """A server that accepts connections and closes them, without a response, when `until` returns a true value."""

    until: Callable[[], object]
    server: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    connections: list[socket.socket] = field(default_factory=list)
    is_closed: bool = False

    @property
    def host(self) -> str:
        """Its host and port, for spec.upstreamUrl."""
        return f"localhost:{self.server.getsockname()[1]}"

    def run(self) -> None:
        """Accept connections until the socket is closed."""
        with contextlib.suppress(OSError, AssertionError):
            while True:
                self.connections.append(self.server.accept()[0])
                wait_for(self.until, "the condition of the test")
                self.is_closed = True
                self.connections[-1].close()


Silent = Callable[..., SilentServer]


@pytest.fixture
def silent() -> Iterator[Silent]:
    """Start servers that never respond; by default they never close connections."""
    never = threading.Event()
    places: list[SilentServer] = []

    def start(until: Callable[[], object] = never.wait) -> SilentServer:
        place = SilentServer(until)
        places.append(place)
        threading.Thread(target=place.run, daemon=True).start()
        return place

    yield start
    never.set()
    for place in places:
        place.server.shutdown(socket.SHUT_RDWR)
        place.server.close()
        for each in place.connections:
            each.close()


def ready_condition(api: Api, name: str) -> Object:
    """Return the Ready condition of a RegistryMirror; an empty dict if no run wrote it."""
    path = f"/apis/kubechores.dev/v1/registrymirrors/{name}"
    (found, *_) = api.call("GET", path)["status"]["conditions"]
    return {} if found["reason"] == "NotRead" else dict(found)


def writes_about(api: Api, name: str) -> list[str]:
    """Return the status writes of a RegistryMirror since the mark, and the reasons of its Events."""
    statuses = [each.path for each in api.writes() if each.path.endswith(f"/{name}/status")]
    events = [each for each in api.events() if each["involvedObject"]["name"] == name]
    return [*statuses, *(str(each["reason"]) for each in events)]


def of(ran: Ran, name: str) -> list[Object]:
    return [each for each in ran.results if each.get("subjects") == [name]]


def test_a_silent_upstream_delays_the_statuses_of_a_run_only_until_its_limit(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries, silent: Silent
) -> None:
    good = mirrors.healthy("good", registries.upstream).registry_mirror.name
    bad = mirrors.create("bad", silent().host)["metadata"]["name"]
    api.mark()

    ran = probe()

    assert "/v2/: no complete answer within 9 seconds\n" in ran.stderr
    assert ran.exit_code == 0
    assert (ready_condition(api, good)["reason"], ready_condition(api, bad)["reason"]) == ("Healthy", "UpstreamDown")
    assert [len(writes_about(api, each)) for each in (good, bad)] == [2, 2], "a status and an Event each"


def test_a_refused_connection_is_reported_no_earlier_than_one_without_a_response(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries, silent: Silent
) -> None:
    mirrors.healthy("good", registries.upstream)
    refused = mirrors.create("a-refused", "localhost:1")["metadata"]["name"]
    meanwhile: list[Object] = []

    def until() -> bool:
        meanwhile.append(ready_condition(api, refused))
        return len(meanwhile) >= 40

    hanging = silent(until)
    mirrors.create("bad", hanging.host)

    probe()

    assert hanging.is_closed
    assert meanwhile[:40] == [{}] * 40, "otherwise a status shows authors of RegistryMirrors closed ports"
    assert ready_condition(api, refused)["reason"] == "UpstreamDown"


def test_a_mirror_is_created_although_the_upstream_of_another_is_silent(
    api: Api, repairing: Run, mirrors: Mirrors, registries: Registries, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "PROBE_SECONDS", 4.0)
    good = mirrors.of(mirrors.create("good", registries.upstream))
    bad = mirrors.of(mirrors.create("bad", silent().host))

    ran = repairing()

    assert ran.exit_code == 0
    for each in (good, bad):
        created = [one["action"] for one in of(ran, each.registry_mirror.name) if "action" in one]
        assert created == ["created"] * 4
        assert api.get(each.stateful_set.document())


@pytest.mark.parametrize("edits", [False, True], ids=["created", "edited"])
def test_an_upstream_that_did_not_respond_is_probed_last(
    probe: Run, mirrors: Mirrors, registries: Registries, silent: Silent, monkeypatch: pytest.MonkeyPatch, edits: bool
) -> None:
    def on_probe(host: str) -> bool:
        registries.requests.append((host, ""))
        return True

    # In the order of their URLs, the new one comes last.
    places = sorted((silent(lambda: True) for _ in range(2)), key=lambda each: each.host)
    before, new = (each.host.replace("localhost", "127.0.0.1") for each in places)
    mirrors.healthy("good", registries.upstream)
    mirrors.create("silent", before)
    edited = mirrors.create("edited", "localhost:1") if edits else None
    probe()
    if edited:
        mirrors.edit(edited, {"spec": {"upstreamUrl": new}})
    else:
        mirrors.create("new", new)
    monkeypatch.setattr(web, "IN_FLIGHT", 1)
    registries.requests.clear()
    for place, host in zip(places, (before, new), strict=True):
        place.until = partial(on_probe, host)

    probe()

    hosts = dict.fromkeys(host for host, _ in registries.requests)
    assert [host for host in hosts if host in (registries.upstream, new, before)] == [registries.upstream, new, before]


def test_all_probes_share_one_time_limit_and_an_upstream_not_probed_is_not_down(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "IN_FLIGHT", 1)
    monkeypatch.setattr(web, "PROBE_SECONDS", 100.0)
    monkeypatch.setattr(runner, "_PROBES_SECONDS", 5.0)  # for one to begin, also on a busy machine
    monkeypatch.setattr(web, "TOTAL_SECONDS", 100.0)
    monkeypatch.setattr(web, "READ_SECONDS", 100.0)
    places = [silent(), silent(), silent()]
    names = [mirrors.create(f"silent-{number}", each.host)["metadata"]["name"] for number, each in enumerate(places)]

    ran = probe()

    assert ran.exit_code == 0
    assert sum(len(each.connections) for each in places) == 1
    for name, place in zip(names, places, strict=True):
        (found,) = [each for each in of(ran, name) if each["code"] != "missing"]
        assert (found["code"], found["reason"]) == ("unreadable", f"https://{place.host}/v2/: not probed in time")
        assert ready_condition(api, name)["reason"] == "Unreadable"


def test_a_probe_without_enough_time_reports_only_success(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "PROBE_SECONDS", 2 * runner._PROBES_SECONDS)
    closes = mirrors.healthy("closes", silent(lambda: True).host).registry_mirror.name
    good = mirrors.healthy("good", registries.upstream).registry_mirror.name
    refused = mirrors.healthy("refused", "localhost:1").registry_mirror.name

    probe()

    for each in (ready_condition(api, closes), ready_condition(api, refused)):
        assert (each["status"], each["reason"]) == ("Unknown", "Unreadable")
    assert ready_condition(api, good)["reason"] == "Healthy"


def test_a_registry_is_not_rolled_while_its_upstream_was_not_probed(
    api: Api, repairing: Run, mirrors: Mirrors, registries: Registries, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_PROBES_SECONDS", 1.0)
    monkeypatch.setattr(web, "TOTAL_SECONDS", 4.0)
    mirror = mirrors.healthy("silent", silent().host)
    template = {"spec": {"template": {"metadata": {"labels": {"app.kubernetes.io/name": "other"}}}}}
    mirrors.edit(mirror.stateful_set.document(), template)
    mirrors.settle(mirror)
    api.mark()

    ran = repairing()

    (found,) = [each for each in ran.results if each["code"] == "drifted"]
    assert found["remedy"].startswith("a repair continues when a probe shows that the upstream responds: ")
    assert [each.path for each in api.writes() if "statefulsets" in each.path] == []


@contextlib.contextmanager
def waiting(
    api: Api, registries: Registries, probe_seconds: float = web.PROBE_SECONDS
) -> Iterator[subprocess.Popen[str]]:
    """Start a repair that waits for the conditions of its next steps, and for `probe_seconds` for a silent server."""
    kubeconfig = api.service_account_kubeconfig("kube-chores", "mirror-repair")
    env = {**os.environ, **registries.env, "KUBECONFIG": str(kubeconfig), "CHORES_REPAIR": "1", "CHORES_WAIT": "60"}
    limit = f"from jobs.kit import web; web.PROBE_SECONDS = {probe_seconds}"
    code = f"{limit}; from jobs.__main__ import main; main(['mirror-audit'])"
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", code], env=env, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_statuses_are_written_before_a_repair_waits_and_when_a_mirror_is_ready(
    api: Api, mirrors: Mirrors, registries: Registries, silent: Silent
) -> None:
    hanging = silent(lambda: registries.upstream in [host for host, _ in registries.requests])
    hosts = {"good": registries.upstream, "bad": "localhost:1", "silent": hanging.host}
    documents = {name: mirrors.create(name, host) for name, host in hosts.items()}
    for each in documents.values():
        mirrors.volume(mirrors.of(each))
    good, *others = (each["metadata"]["name"] for each in documents.values())

    with waiting(api, registries) as process:
        wait_for(lambda: all(ready_condition(api, name) for name in (good, *others)), "the statuses")
        ready = ready_condition(api, good)
        assert (ready["status"], ready["reason"]) == ("Unknown", "InProgress")
        assert {ready_condition(api, name)["reason"] for name in others} == {"UpstreamDown"}
        mirrors.settle(mirrors.of(documents["good"]))
        wait_for(lambda: api.get(mirrors.of(documents["good"]).daemon_set.document()), "the DaemonSet")
        mirrors.settle(mirrors.of(documents["good"]))
        wait_for(lambda: ready_condition(api, good)["reason"] == "Healthy", "the status of the mirror that is ready")
        wait_for(lambda: "Healthy" in event_reasons(api, good), "its Event, which the run writes after the status")
        assert process.poll() is None, "the run still waits for the others"
        process.send_signal(signal.SIGTERM)
        stdout, log = process.communicate(timeout=GIVE_UP_SECONDS)

    assert process.returncode == 143
    assert f"mirror-audit: registrymirror/{good}: Healthy: " in log
    assert "mirror-audit: not everything is ready yet: the run reads again for up to 60 seconds\n" in log
    assert all(f"registrymirror/{name}" in stdout for name in others)
    assert "  created  daemonset/" in stdout, "the run reports its writes"


def event_reasons(api: Api, name: str) -> list[str]:
    return [each["reason"] for each in api.events() if each["involvedObject"]["name"] == name]


def test_a_stopped_run_does_not_wait_for_probes(
    api: Api, mirrors: Mirrors, registries: Registries, silent: Silent
) -> None:
    hanging = silent()
    name = mirrors.create("bad", hanging.host)["metadata"]["name"]

    with waiting(api, registries, probe_seconds=100.0) as process:
        wait_for(lambda: hanging.connections, "the probe")
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=GIVE_UP_SECONDS)

    assert process.returncode == 143
    assert f"https://{hanging.host}/v2/: not fetched: the run was stopped\n" in log, "not the limit of the probe"
    assert ready_condition(api, name) == {}


@pytest.fixture
def dead_dns(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Have no DNS server answer; return the environment of a run that resolves the names of mirrors itself."""

    def getaddrinfo(host: str, *_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, f"Temporary failure in name resolution of {host}")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", getaddrinfo)
        yield {"NO_PROXY": "*"}


def three(mirrors: Mirrors, registries: Registries) -> list[Mirror]:
    hosts = {"a": registries.upstream, "b": "quay.io", "c": "gcr.io"}
    return [mirrors.healthy(name, host) for name, host in hosts.items()]


def test_a_dead_dns_is_one_finding_that_is_not_about_network_policies(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries, dead_dns: dict[str, str]
) -> None:
    found = three(mirrors, registries)
    names = [each.registry_mirror.name for each in found]

    ran = probe(env=dead_dns)

    (result,) = ran.results
    assert (ran.exit_code, result["code"], result["subjects"]) == (0, "name-not-resolved", names)
    assert result["reason"] == (
        "the names of all 3 mirrors were not resolved, so the cluster's DNS does not work; "
        f"the name {found[0].name}.{NAMESPACE}.svc was not resolved: no DNS server answered"
    )
    assert result["remedy"].startswith("check that the pods of the cluster's DNS run")
    for each in names:
        assert ready_condition(api, each)["reason"] == "NameNotResolved"
    api.mark()
    probe(env=dead_dns)
    assert api.writes() == []


def test_a_name_that_is_not_resolved_does_not_merge_with_a_mirror_that_responds(
    probe: Run, mirrors: Mirrors, registries: Registries, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = mirrors.healthy("good", registries.upstream)
    new = mirrors.healthy("new", "quay.io")
    proxied = f"{good.name}.{NAMESPACE}.svc"

    ran = probe(env={"NO_PROXY": f"localhost,{new.name}.{NAMESPACE}.svc,quay.io"})

    (result,) = of(ran, new.registry_mirror.name)
    assert (result["code"], result["object"]["name"]) == ("name-not-resolved", new.name)
    assert (f"{proxied}:5000", "/v2/") in registries.requests
    assert of(ran, good.registry_mirror.name) == []


def test_a_registry_is_not_rolled_while_the_dns_is_dead(
    api: Api, repairing: Run, mirrors: Mirrors, registries: Registries, dead_dns: dict[str, str]
) -> None:
    for each in three(mirrors, registries):
        mirrors.specify(each, ttl="24h")
    api.mark()

    ran = repairing(env=dead_dns)

    remedies = [each["remedy"] for each in ran.results if each["code"] == "drifted"]
    assert len(remedies) == 3
    assert all(each.startswith("a repair continues when a probe shows that the upstream") for each in remedies)
    assert [each.path for each in api.writes() if "statefulsets" in each.path] == []


def test_mirrors_that_all_fail_alike_are_one_finding_with_their_number(
    api: Api, probe: Run, mirrors: Mirrors, registries: Registries
) -> None:
    found = three(mirrors, registries)
    for each in found:
        registries.answers[f"{each.name}.{NAMESPACE}.svc:5000"] = status(404)

    ran = probe()

    (result,) = [each for each in ran.results if each["code"] == "mirror-down"]
    assert result["subjects"] == [each.registry_mirror.name for each in found]
    assert result["reason"].startswith("none of the 3 mirrors responds; ")
    assert ready_condition(api, result["subjects"][1])["reason"] == "MirrorDown"
