"""A publisher of rates in the cluster: a pod of the project's image serves a document in the ECB's format."""

from tests.apis import Api, Object, wait_for
from tests.node.kubectl import Kubectl
from tests.rates import ecb

LABELS = {"app": "publisher"}


class Publisher:
    """The URL of the publisher."""

    def __init__(self, url: str) -> None:
        self.url = url

    def env(self) -> dict[str, str]:
        """Return the environment variables that set this publisher for fetch-rates."""
        return {"CHORES_ECB_URL": self.url}


def publish(api: Api, kubectl: Kubectl, image: str) -> Publisher:
    """Start a publisher in a namespace of its own, and wait until it serves."""
    namespace = api.namespace("publisher")
    documents = {"name": "documents", "namespace": namespace}
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": documents, "data": {"ecb.xml": ecb().decode()}})
    api.create(pod(namespace, image))
    spec = {"selector": LABELS, "ports": [{"port": 80, "targetPort": 8080}]}
    place = {"name": "publisher", "namespace": namespace}
    service = api.create({"apiVersion": "v1", "kind": "Service", "metadata": place, "spec": spec})
    kubectl(f"wait pod/publisher -n {namespace} --for=condition=Ready --timeout=60s")
    slices = "/apis/discovery.k8s.io/v1/namespaces/" + namespace + "/endpointslices"
    wait_for(lambda: any(each["endpoints"] for each in api.call("GET", slices)["items"]), "the publisher's endpoints")
    return Publisher(f"http://{service['spec']['clusterIP']}/ecb.xml")


def pod(namespace: str, image: str) -> Object:
    """Return the pod that serves the documents."""
    container = {
        "name": "publisher",
        "image": image,
        "command": ["python3", "-m", "http.server", "8080", "--directory", "/documents"],
        "readinessProbe": {"httpGet": {"path": "/ecb.xml", "port": 8080}, "periodSeconds": 1},
        "volumeMounts": [{"name": "documents", "mountPath": "/documents"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "publisher", "namespace": namespace, "labels": LABELS},
        "spec": {
            "containers": [container],
            "volumes": [{"name": "documents", "configMap": {"name": "documents"}}],
            "terminationGracePeriodSeconds": 0,
        },
    }
