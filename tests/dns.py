"""The cluster DNS of the node, which resolves names of Services: `python -m tests.dns KUBECONFIG ADDRESS`.

https://github.com/kubernetes/dns/blob/master/docs/specification.md
"""

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
    """Answers with the addresses that the API server has now: of a Service, or of a headless one's endpoints."""

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
            addresses = self._addresses(str(request.q.qname))
        except OSError:  # the API server does not answer
            reply.header.rcode = RCODE.SERVFAIL
            return reply
        if not addresses:
            reply.header.rcode = RCODE.NXDOMAIN
        elif request.q.qtype == QTYPE.A:
            reply.add_answer(*(RR(request.q.qname, QTYPE.A, rdata=A(address), ttl=5) for address in addresses))
        return reply

    def _addresses(self, name: str) -> list[str]:
        labels = name.rstrip(".").removesuffix(f".svc.{DOMAIN}").split(".")
        if not name.rstrip(".").endswith(f".svc.{DOMAIN}") or len(labels) != 2:
            return []
        service, namespace = labels
        services = self._items(f"/api/v1/namespaces/{namespace}/services")
        addresses = {each["metadata"]["name"]: str(each["spec"].get("clusterIP", "")) for each in services}
        if addresses.get(service) != "None":
            return list(filter(None, [addresses.get(service, "")]))
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        slices = self._items(f"{path}?labelSelector=kubernetes.io/service-name%3D{service}")
        endpoints = (each for one in slices for each in one.get("endpoints") or () if each["conditions"].get("ready"))
        return [str(address) for each in endpoints for address in each["addresses"]]

    def _items(self, path: str) -> list[dict[str, Any]]:
        asked = urllib.request.Request(self._server + path, headers={"Authorization": f"Bearer {self._token}"})
        with urllib.request.urlopen(asked, context=self._tls, timeout=5) as answer:
            items: list[dict[str, Any]] = json.load(answer)["items"]
        return items


def main(kubeconfig: str, address: str) -> None:
    """Serve until the process is ended."""
    DNSServer(Services(Path(kubeconfig)), address=address, port=PORT, logger=DNSLogger("-request,-reply")).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
