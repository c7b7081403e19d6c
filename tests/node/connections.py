"""Pods that connect to another pod all the time, and report each change of the result."""

from collections.abc import Callable
from typing import Any

from tests.apis import Api, Object, wait_for

SERVER = """
import socket
listening = socket.create_server(("", 8080), backlog=128)
while True:
    listening.accept()[0].close()
"""
# Prints a line when the result changes. It resets connections, since closed ones would use up the ports. A rule that is
# set during a handshake resets it: connect() may raise BrokenPipeError.
CLIENT = """
import socket, struct, sys, time
last, attempts = "", 0
while True:
    attempts += 1
    try:
        with socket.create_connection((sys.argv[1], 8080), timeout=10) as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        now = "open"
    except ConnectionError:
        now = "refused"
    except OSError as error:
        now = str(error)
    if now != last:
        print(attempts, now, flush=True)
    last = now
    time.sleep(0.002)
"""
Start = Callable[..., Object]


def serve(start: Start, image: str) -> str:
    """Start a pod that accepts connections. Return its address."""
    return str(start("server", image, command=["python3", "-c", SERVER])["status"]["podIP"])


class Connections:
    """What a connecting pod has printed."""

    def __init__(self, api: Api, start: Start, image: str, server: str, name: str, **fields: Any) -> None:
        connecting = start(name, image, command=["python3", "-c", CLIENT, server], **fields)
        self._api, self._log = api, api.path(connecting) + "/log"

    def changes(self) -> list[str]:
        """Return the results that differ from the one before."""
        return [line.partition(" ")[2] for line in self._lines()]

    def attempts(self) -> int:
        """Return the number of the attempt with the last change."""
        return int(self._lines()[-1].partition(" ")[0])

    def wait(self, *changes: str) -> None:
        """Wait until the results changed in this order."""
        wait_for(lambda: self.changes() == [*changes], f"{self._log}: {changes}", detail=self.changes)

    def _lines(self) -> list[str]:
        return self._api.request("GET", self._log)[2].decode().splitlines()
