"""A loopback proxy before an API server that has somebody else write after each read of a job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.apis import Api

_PASSED = ("Authorization", "User-Agent", "Accept", "Content-Type")


@contextmanager
def rival(api: Api, kubeconfig: Path, write: Callable[[], object]) -> Iterator[Path]:
    """Yield a kubeconfig of the same account; `write` is called after each GET, before the answer reaches the job."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass_on()

        def do_POST(self) -> None:
            self._pass_on()

        def do_PUT(self) -> None:
            self._pass_on()

        def do_PATCH(self) -> None:
            self._pass_on()

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
            sent = {name: self.headers[name] for name in _PASSED if name in self.headers}
            status, headers, answer = api.request(self.command, self.path, body, headers=sent)
            if self.command == "GET":
                with lock:
                    write()
            self.send_response(status)
            self.send_header("Content-Type", headers["Content-Type"])
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_words: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    config = yaml.safe_load(kubeconfig.read_text())
    for each in config["clusters"]:
        each["cluster"] = {"server": f"http://127.0.0.1:{server.server_port}"}
    contested = kubeconfig.with_name(f"contested-{kubeconfig.name}")
    contested.write_text(yaml.safe_dump(config))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield contested
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
