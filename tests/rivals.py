"""A loopback proxy before an API server that has somebody else write after each read of a job."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import yaml

from tests.apis import Api
from tests.serving import QuietHandler, serving

_PASSED = ("Authorization", "User-Agent", "Accept", "Content-Type")


@contextmanager
def rival(api: Api, kubeconfig: Path, write: Callable[[], object]) -> Iterator[Path]:
    """Yield a kubeconfig of the same account; `write` is called after each GET, before the answer reaches the job."""
    lock = threading.Lock()

    class Handler(QuietHandler):
        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
            sent = {name: self.headers[name] for name in _PASSED if name in self.headers}
            status, headers, answer = api.request(self.command, self.path, body, headers=sent)
            if self.command == "GET":
                with lock:
                    write()
            self.send(status, {"Content-Type": headers["Content-Type"]}, answer)

        do_GET = do_POST = do_PUT = do_PATCH = _pass_on  # noqa: N815 - the names that http.server calls

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    config = yaml.safe_load(kubeconfig.read_text())
    for each in config["clusters"]:
        each["cluster"] = {"server": f"http://127.0.0.1:{server.server_port}"}
    contested = kubeconfig.with_name(f"contested-{kubeconfig.name}")
    contested.write_text(yaml.safe_dump(config))
    with serving(server):
        yield contested
