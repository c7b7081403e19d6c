"""`python -m kubesandbox`: the embedded cluster alone, until it is interrupted."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from . import Fault, Sandbox

_ENDING = {signal.SIGINT, signal.SIGTERM}


def main() -> int:
    """Serve until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m kubesandbox", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="default: any free one")
    parser.add_argument("--kubeconfig", type=Path, help="where to write it; default: a temporary file")
    parser.add_argument("--tls", action="store_true", help="serve HTTPS; the kubeconfig has the authority")
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        type=Fault.parse,
        metavar="'METHOD PATH [NAME=VALUE]...'",
        help="e.g. 'PUT /api/v1/namespaces/*/secrets/* status=429 retry-after=1 times=2'; repeatable",
    )
    options = parser.parse_args()
    # A handler that sets an Event would wait for ever if the signal came while the main thread has the Event's lock.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)  # also in the threads that the server starts
    try:
        sandbox = Sandbox(port=options.port, tls=options.tls)
    except ModuleNotFoundError as error:
        parser.exit(1, f"error: {error}\n")
    with tempfile.TemporaryDirectory(prefix="kubesandbox-") as folder, sandbox:
        for fault in options.fault:
            sandbox.inject(fault)
        path = sandbox.kubeconfig(options.kubeconfig or Path(folder) / "kubeconfig")
        sys.stdout.write(f"serving on {sandbox.url}\nexport KUBECONFIG={path}\n")
        sys.stdout.flush()
        signal.sigwait(_ENDING)
    return 0


if __name__ == "__main__":
    sys.exit(main())
