"""Commands inside the namespaces of a node."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.one_node import Node

TIMEOUT_SECONDS = 30.0
# The port of a program inside a network namespace can only be used by a process inside.
_REQUEST = """
import sys, urllib.request
method, url, body = sys.argv[1:]
sent = urllib.request.Request(url, body.encode() or None, {"Content-Type": "application/json"}, method=method)
sys.stdout.write(urllib.request.urlopen(sent, timeout=20).read().decode())
"""


def run(node: Node, *command: str) -> str:
    """Run a command, which must succeed, and return its stdout.

    Raises:
        OSError: it failed; the message has its stderr.
        subprocess.TimeoutExpired: it did not end.
    """
    done = subprocess.run([*node.enter, *command], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)[:200]}: {done.stderr.strip()[-500:]}")
    return done.stdout


def request(node: Node, method: str, url: str, body: object = None) -> Any:
    """Send a request with JSON to a program of the node, and return the decoded body of the response."""
    sent = json.dumps(body) if body is not None else ""
    received = run(node, sys.executable, "-c", _REQUEST, method, url, sent)
    return json.loads(received) if received.strip() else None
