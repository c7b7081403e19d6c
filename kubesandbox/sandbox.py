"""The embedded cluster as a thing to start, look into and stop."""

from __future__ import annotations

import base64
import importlib
import secrets
import threading
from pathlib import Path
from types import TracebackType

import yaml

from .api.bootstrap import become_another, populate
from .api.cluster import Cluster
from .api.controllers import Controllers
from .http.faults import Fault, Faults
from .http.server import Request, Server
from .http.tls import Identity

# The packages of the extra `sandbox`, and the module of each.
EXTRA = {"cel-python": "celpy", "jsonpatch": "jsonpatch"}


class Sandbox:
    """An in-memory Kubernetes API server on 127.0.0.1; a context manager, or start() and stop()."""

    def __init__(self, port: int = 0, *, of: Sandbox | None = None, tls: bool = False) -> None:
        """With `of` it starts with a copy of the objects, versions and identities of another one; `tls`: as HTTPS.

        Raises:
            ModuleNotFoundError: the extra `sandbox` is not installed.
        """
        _require_extra()
        self.admin_token: str = of.admin_token if of else secrets.token_hex(16)
        self.cluster: Cluster = of.cluster.copy() if of else Cluster()
        if of:
            become_another(self.cluster)
        else:
            populate(self.cluster)
        self._faults = Faults()
        self._identity = Identity() if tls else None
        self._server = Server(port, self.cluster, self._faults, self.admin_token, self._identity)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="sandbox", daemon=True)
        self._controllers = Controllers(self.cluster)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http{'s' * bool(self._identity)}://127.0.0.1:{self._server.server_port}"

    @property
    def authority(self) -> bytes:
        """The certificate authority in PEM; empty without TLS."""
        return self._identity.authority if self._identity else b""

    @property
    def requests(self) -> list[Request]:
        """Every request so far, in the order of their answers."""
        return self._server.requests

    def start(self) -> None:
        """Serve in a thread."""
        self._controllers.start()
        self._thread.start()

    def stop(self) -> None:
        """End all connections and threads."""
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()
        self._controllers.stop()
        self._thread.join()

    def __enter__(self) -> Sandbox:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def kubeconfig(
        self, path: Path | str, token: str | None = None, namespace: str = "default", context: str = "sandbox"
    ) -> Path:
        """Write a kubeconfig, by default the admin's."""
        user = {"token": token or self.admin_token}
        data = base64.b64encode(self.authority).decode()
        authority = {"certificate-authority-data": data} if data else {}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": {"server": self.url, **authority}}],
            "users": [{"name": context, "user": user}],
            "contexts": [{"name": context, "context": {"cluster": "sandbox", "user": context, "namespace": namespace}}],
            "current-context": context,
        }
        path = Path(path)
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path

    def inject(self, fault: Fault) -> None:
        """Put a fault in force."""
        self._faults.add(fault)

    def clear_faults(self) -> None:
        """Lift all faults."""
        self._faults.clear()

    def expire_continue_tokens(self) -> None:
        """Make every list that is under way answer 410 Expired, as a compaction does."""
        with self.cluster.store.lock:
            self.cluster.store.forget_snapshots()


def _require_extra() -> None:
    for package, module in EXTRA.items():
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            advice = "run pip install -e '.[sandbox]' in a clone of the repository"
            raise ModuleNotFoundError(f"the embedded cluster needs {package}: {advice}") from error
