"""Enforce the NetworkPolicies of one namespace, as a network plugin does: with iptables, in the network of each pod.

It supports only what the tests use: ingress from pods of the same namespace, by their labels. It fails on other fields.
"""

import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from typing import NamedTuple

from tests.apis import Api, Object
from tests.namespaces import ADDRESS
from tests.node.kubectl import Kubectl
from tests.one_node import Node


class Enforced(NamedTuple):
    """An event of the API server about a NetworkPolicy, after the rules of all pods were replaced."""

    event: str
    name: str
    uid: str


class Enforcer:
    """Replaces the rules of the namespace's running pods at each event; `enforced` are the events so far."""

    def __init__(self, node: Node, api: Api, namespace: str) -> None:
        self.enforced: list[Enforced] = []
        self.failure: BaseException | None = None
        self._node, self._api, self._namespace = node, api, namespace
        self._specs: dict[str, Object] = {}

    def follow(self, events: Iterator[str]) -> None:
        """Act on watch events, one JSON object a line, until they end."""
        try:
            for line in events:
                self._act(json.loads(line))
        except BaseException as error:
            self.failure = error

    def _act(self, event: Object) -> None:
        policy = event["object"]
        name = policy["metadata"]["name"]
        self._specs.pop(name, None)
        if event["type"] != "DELETED":
            self._specs[name] = policy["spec"]
        pods = [pod for pod in self._api.items("v1", "Pod", self._namespace) if pod["status"]["phase"] == "Running"]
        for pod in pods:
            self._replace_rules(pod, _rules(pod, pods, list(self._specs.values())))
        self.enforced.append(Enforced(event["type"], name, policy["metadata"]["uid"]))

    def _replace_rules(self, pod: Object, rules: list[str]) -> None:
        """Replace all rules of a pod at once: the kernel uses the old ones or the new ones."""
        table = "\n".join(["*filter", ":INPUT ACCEPT [0:0]", *rules, "COMMIT", ""])
        network = ["nsenter", f"--net=/proc/{self._process(pod)}/ns/net"]
        command = [*self._node.enter, *network, "iptables-restore"]
        subprocess.run(command, input=table, text=True, check=True, capture_output=True)

    def _process(self, pod: Object) -> str:
        """Return the process of the pod's first container, in the node's process namespace."""
        container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
        command = [*self._node.enter, "ctr", "--namespace=k8s.io", "tasks", "ls"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return next(words[1] for words in map(str.split, listed.splitlines()) if words[0] == container)


def _rules(pod: Object, pods: list[Object], specs: list[Object]) -> list[str]:
    selecting = [spec for spec in specs if _selects(spec["podSelector"], pod)]
    if not selecting:
        return []
    peers = [peer for spec in selecting for peer in _peers(spec)]
    allowed = [each["status"]["podIP"] for each in pods if any(_selects(peer, each) for peer in peers)]
    return [
        "-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
        *(f"-A INPUT -s {address} -j ACCEPT" for address in ("127.0.0.1", ADDRESS, *allowed)),
        "-A INPUT -p tcp -j REJECT --reject-with tcp-reset",
        "-A INPUT -j DROP",
    ]


def _peers(spec: Object) -> list[Object]:
    """Return the selectors of pods that may connect."""
    sources = [each for rule in spec.get("ingress", []) for each in rule["from"]]
    known = all(rule.keys() == {"from"} for rule in spec.get("ingress", []))
    if spec["policyTypes"] != ["Ingress"] or not known or any(each.keys() != {"podSelector"} for each in sources):
        raise NotImplementedError(f"the tests do not enforce {spec}")
    return [each["podSelector"] for each in sources]


def _selects(selector: Object, pod: Object) -> bool:
    if selector.keys() - {"matchLabels"}:
        raise NotImplementedError(f"the tests do not enforce {selector}")
    return bool(selector.get("matchLabels", {}).items() <= pod["metadata"].get("labels", {}).items())


@contextlib.contextmanager
def enforcing(node: Node, api: Api, kubectl: Kubectl, namespace: str) -> Iterator[Enforcer]:
    """Enforce the NetworkPolicies of a namespace while the context is open."""
    enforcer = Enforcer(node, api, namespace)
    watch = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies?watch=true"
    command = ["kubectl", "get", "--raw", watch]
    with subprocess.Popen(command, env=kubectl.env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        thread = threading.Thread(target=enforcer.follow, args=[process.stdout])
        thread.start()
        try:
            yield enforcer
        finally:
            process.terminate()
            thread.join()
            if enforcer.failure:
                raise enforcer.failure
