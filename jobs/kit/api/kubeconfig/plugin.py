"""Run the credential plugins of kubeconfigs: commands that print a token or a client certificate.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import IO, Annotated, Any

import msgspec
from msgspec import Meta, Struct

from jobs.kit.api.kubeconfig.structs import Exec
from jobs.kit.values.errors import ConfigurationError
from jobs.kit.values.text import visible

# If a credential is expired at once, the plugin still does not run for each request.
_FRESH_SECONDS = 5.0
_SHOWN_CHARACTERS = 500
_MOST_OUTPUT_BYTES = 1 << 20
_KEPT_BYTES = 16 << 10  # of stderr
_JWT = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]*")


class Credential(Struct, rename="camel"):
    """The `status` of an ExecCredential: a token or certificate, and when it expires."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, Meta(tz=True)] | None = None


class _ExecCredential(Struct, rename="camel"):
    api_version: str
    kind: str
    status: Credential | None = None


@dataclass
class Plugin:
    """The credential plugin of `user`. `cluster` is the cluster information for it, with provideClusterInfo."""

    user: str
    settings: Exec
    cluster: Mapping[str, Any] | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    latest: Credential | None = None
    _moment: float = 0.0

    def credential(self) -> Credential:
        """Return the credential; run the plugin the first time, and again once the credential expired.

        Raises:
            ConfigurationError: the plugin failed, or its output is not a credential.
        """
        if self.latest is None or self._is_expired(self.latest):
            self.latest = self._validate(self._run())
            self._moment = time.monotonic()
        return self.latest

    def _is_expired(self, credential: Credential) -> bool:
        end = credential.expiration_timestamp
        if end is None or time.monotonic() - self._moment < _FRESH_SECONDS:
            return False
        return datetime.now(timezone.utc) >= end

    def _run(self) -> bytes:
        command = shutil.which(self.settings.command)
        if command is None:
            raise self._problem("is not found", self.settings.install_hint or "install it, or change exec.command")
        interactive = self._is_interactive()
        # The stderr of an interactive plugin goes to the terminal: the user has to follow its instructions.
        try:
            process = subprocess.Popen(  # noqa: S603 - the kubeconfig's owner chose the command
                [command, *self.settings.args],
                env=self._environment(interactive),
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if interactive else subprocess.PIPE,
            )
        except (OSError, ValueError) as error:
            raise self._problem("cannot be run", str(error)) from error
        with process, ThreadPoolExecutor(1) as pool:
            stderr = pool.submit(_read_tail, process.stderr)
            assert process.stdout
            output = process.stdout.read(_MOST_OUTPUT_BYTES + 1)
            if len(output) > _MOST_OUTPUT_BYTES:
                process.kill()
                process.stdout.close()  # ends child processes of the plugin
        if len(output) > _MOST_OUTPUT_BYTES:
            raise self._problem(f"printed more than {_MOST_OUTPUT_BYTES >> 20} MiB")
        if process.returncode:
            raise self._problem(f"failed with exit code {process.returncode}", stderr.result().decode(errors="replace"))
        return output

    def _is_interactive(self) -> bool:
        terminal = sys.stdin is not None and sys.stdin.isatty()
        if self.settings.interactive_mode == "Always" and not terminal:
            raise self._problem("needs a terminal (interactiveMode: Always)", "standard input is not a terminal")
        return terminal and self.settings.interactive_mode != "Never"

    def _environment(self, interactive: bool) -> dict[str, str]:
        spec: dict[str, Any] = {"interactive": interactive}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        info = {"apiVersion": self.settings.api_version, "kind": "ExecCredential", "spec": spec}
        own = {each.name: each.value for each in self.settings.env}
        return {**self.environ, **own, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}

    def _validate(self, output: bytes) -> Credential:
        # Messages do not show the output: it may contain a token.
        try:
            answer = msgspec.json.decode(output, type=_ExecCredential)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._problem("did not print an ExecCredential", str(error)) from None
        if (answer.api_version, answer.kind) != (self.settings.api_version, "ExecCredential"):
            raise self._problem("did not print an ExecCredential", f"its apiVersion is not {self.settings.api_version}")
        credential = answer.status or Credential()
        certificate, key = credential.client_certificate_data, credential.client_key_data
        if bool(certificate) != bool(key):
            raise self._problem("printed only one of clientCertificateData and clientKeyData")
        if not credential.token and not certificate:
            raise self._problem("printed an ExecCredential without token and client certificate")
        return credential

    def _problem(self, what: str, detail: str = "") -> ConfigurationError:
        detail = self._make_printable(detail)
        problem = f"user {self.user!r}: the credential plugin {self.settings.command!r} {what}"
        return ConfigurationError(f"{problem}: {detail}" if detail else problem)

    def _make_printable(self, text: str) -> str:
        """Return the end of the text on one line, with tokens removed and control characters escaped."""
        text = _JWT.sub("[token]", text)
        if self.latest and self.latest.token:
            text = text.replace(self.latest.token, "[token]")
        text = visible(" ".join(re.split(r"[ \t\r\n]+", text.strip())))
        return text if len(text) <= _SHOWN_CHARACTERS else "..." + text[-_SHOWN_CHARACTERS:]


def _read_tail(stream: IO[bytes] | None) -> bytes:
    """Read a stream to its end; return its last bytes."""
    kept = b""
    while stream and (part := stream.read1(_KEPT_BYTES)):  # type: ignore[attr-defined]
        kept = (kept + part)[-_KEPT_BYTES:]
    return kept
