"""Faults of the network between pods and the API server: by toxiproxy, and by rules of iptables.

Only new connections of pods to the Service of the API server are affected, not the kubelet's or the controllers'.
https://github.com/Shopify/toxiproxy
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from soak import inside
from soak.retries import until_done
from tests.apis import wait_for
from tests.control_plane import ROOT
from tests.namespaces import ADDRESS, PODS
from tests.one_node import PORT, Node
from tests.processes import Processes

SERVICE = "10.0.0.1"
PROXY_PORT = 16443
CONTROL = "http://127.0.0.1:8474"
CHAIN = "SOAK"  # only rules of faults, so that it can be emptied again and again
HOOKS = {"nat": "PREROUTING", "filter": "INPUT"}
_TO_SERVICE = ("-s", PODS, "-d", f"{SERVICE}/32", "-p", "tcp", "--dport", "443")
_TO_PROGRAM = ("-s", PODS, "-p", "tcp", "--dport", str(PORT))


class Network:
    """Let connections of pods to the API server be slow, end, or lose packets."""

    def __init__(self, node: Node, folder: Path) -> None:
        self._node = node
        self._processes = Processes(folder, node.enter)
        self._thread = ThreadPoolExecutor(1)  # the kernel ends a program together with the thread that started it
        program = subprocess.run([ROOT / "tools/toxiproxy/build"], stdout=subprocess.PIPE, text=True, check=True)
        self._thread.submit(self._processes, Path(program.stdout.strip()) / "toxiproxy").result()
        proxy = {"name": "api", "listen": f"{ADDRESS}:{PROXY_PORT}", "upstream": f"{ADDRESS}:{PORT}", "enabled": True}
        wait_for(self._answers, "toxiproxy")
        inside.request(node, "POST", f"{CONTROL}/proxies", proxy)
        for table, hook in HOOKS.items():
            self._iptables(table, "-N", CHAIN)
            self._iptables(table, "-I", hook, "1", "-j", CHAIN)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            inside.request(self._node, "GET", f"{CONTROL}/proxies")
            return True
        return False

    @contextlib.contextmanager
    def toxic(self, kind: str, stream: str = "downstream", **attributes: int) -> Iterator[None]:
        """Let a toxic act on new connections; its attributes are those of toxiproxy."""
        toxic = {"name": "toxic", "type": kind, "stream": stream, "attributes": attributes}
        try:
            inside.request(self._node, "POST", f"{CONTROL}/proxies/api/toxics", toxic)
            with self._rule("nat", *_TO_SERVICE, "-j", "DNAT", "--to", f"{ADDRESS}:{PROXY_PORT}"):
                yield
        finally:
            until_done(lambda: inside.request(self._node, "POST", f"{CONTROL}/reset"))  # no proxy has a toxic

    @contextlib.contextmanager
    def lost_packets(self, probability: float) -> Iterator[None]:
        """Let packets be lost, also those of connections that exist."""
        part = ("-m", "statistic", "--mode", "random", "--probability", str(probability))
        with self._rule("filter", *_TO_PROGRAM, *part, "-j", "DROP"):
            yield

    @contextlib.contextmanager
    def refused(self, probability: float) -> Iterator[None]:
        """Let packets be answered with a reset, also those of connections that exist."""
        part = ("-m", "statistic", "--mode", "random", "--probability", str(probability))
        with self._rule("filter", *_TO_PROGRAM, *part, "-j", "REJECT", "--reject-with", "tcp-reset"):
            yield

    @contextlib.contextmanager
    def _rule(self, table: str, *rule: str) -> Iterator[None]:
        try:
            self._iptables(table, "-A", CHAIN, *rule)
            yield
        finally:
            until_done(lambda: self._iptables(table, "-F", CHAIN))

    def _iptables(self, table: str, *words: str) -> None:
        # kube-proxy also changes rules: -w waits for its lock.
        inside.run(self._node, "iptables", "-w", "10", "-t", table, *words)

    def end(self) -> None:
        """End toxiproxy."""
        self._thread.submit(self._processes.end).result()
        self._thread.shutdown()
