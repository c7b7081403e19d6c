"""`python -m kubesandbox`: the embedded cluster alone, until it is interrupted."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
from pathlib import Path

from . import Fault, Sandbox


def main() -> int:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m kubesandbox", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="default: any free one")
    parser.add_argument("--kubeconfig", type=Path, help="where to write it; default: a temporary file")
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        type=Fault.parse,
        metavar="'METHOD PATH [NAME=VALUE]...'",
        help="e.g. 'PUT /api/v1/namespaces/*/secrets/* status=429 retry-after=1 times=2'; repeatable",
    )
    options = parser.parse_args()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    try:
        sandbox = Sandbox(port=options.port)
    except ModuleNotFoundError as error:
        parser.exit(1, f"error: {error}\n")
    with tempfile.TemporaryDirectory(prefix="kubesandbox-") as folder, sandbox:
        for fault in options.fault:
            sandbox.inject(fault)
        path = sandbox.kubeconfig(options.kubeconfig or Path(folder) / "kubeconfig")
        sys.stdout.write(f"serving on {sandbox.url}\nexport KUBECONFIG={path}\n")
        sys.stdout.flush()
        stopped.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
