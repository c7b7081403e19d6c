"""The cluster DNS of the node, which resolves names of Services: `python -m tests.dns KUBECONFIG ADDRESS`.

https://github.com/kubernetes/dns/blob/master/docs/specification.md
"""

from __future__ import annotations

import json
import ssl
import sys
import urllib.request
from pathlib import Path
from typing import Any

import yaml
from dnslib import QTYPE, RCODE, RR, A, DNSRecord
from dnslib.server import BaseResolver, DNSLogger, DNSServer

DOMAIN = "cluster.local"
PORT = 53


class Services(BaseResolver):  # type: ignore[misc]
    """Answers with the ClusterIP that the API server has now; everything else does not exist."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._token = config["users"][0]["user"]["token"]
        self._server = cluster["server"]
        self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])

    def resolve(self, request: DNSRecord, _handler: object) -> DNSRecord:
        """Answer one question."""
        reply = request.reply()
        try:
            address = self._address(str(request.q.qname))
        except OSError:  # the API server does not answer
            reply.header.rcode = RCODE.SERVFAIL
            return reply
        if not address:
            reply.header.rcode = RCODE.NXDOMAIN
        elif request.q.qtype == QTYPE.A:
            reply.add_answer(RR(request.q.qname, QTYPE.A, rdata=A(address), ttl=5))
        return reply

    def _address(self, name: str) -> str:
        labels = name.rstrip(".").removesuffix(f".svc.{DOMAIN}").split(".")
        if not name.rstrip(".").endswith(f".svc.{DOMAIN}") or len(labels) != 2:
            return ""
        path = f"/api/v1/namespaces/{labels[1]}/services"
        asked = urllib.request.Request(self._server + path, headers={"Authorization": f"Bearer {self._token}"})
        with urllib.request.urlopen(asked, context=self._tls, timeout=5) as answer:
            services: list[dict[str, Any]] = json.load(answer)["items"]
        found = {each["metadata"]["name"]: str(each["spec"].get("clusterIP", "")) for each in services}
        return found.get(labels[0], "").replace("None", "")


def main(kubeconfig: str, address: str) -> None:
    """Serve until the process is ended."""
    DNSServer(Services(Path(kubeconfig)), address=address, port=PORT, logger=DNSLogger("-request,-reply")).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
