"""The fields of RegistryMirrors, and their values in the resources of a mirror by docs/registrymirror.md."""

from typing import Any

from tests.walk.walk import Field, Object

HUB: Object = {"upstreamUrl": "docker.io"}
LOGIN: Object = {"upstreamUrl": "docker.io", "allowUnauthenticatedReaders": True}
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
EXPOSED = "the login is not usable, or `credentials-exposed` | the registry is not created or changed |"
SHRINKS = "| `storage.size` shrinks, or `storageClassName` changes | the claim stays."
TOLERATION: Object = {"key": "a", "operator": "Exists"}
OTHER: Object = {"key": "b", "operator": "Equal", "value": "c", "effect": "NoExecute", "tolerationSeconds": 9}
EQUAL: Object = {"key": "a", "operator": "Equal", "value": "c"}
EVERY_TAINT: Object = {"operator": "Exists"}
AMOUNTS = {"cpu": "200m", "memory": "256Mi"}
DEFAULTS = {
    "requests": {"cpu": "50m", "memory": "128Mi", "ephemeral-storage": "64Mi"},
    "limits": {"memory": "512Mi", "ephemeral-storage": "512Mi"},
}


def _created(*values: str) -> dict[str, str]:
    return {f"create with {each}": "The claim stays for a mirror of the same name" for each in values}


def _tolerating(field: str, **one: Any) -> Object:
    return {**HUB, field: [{**EQUAL, **one}]}


def _of_tolerations(field: str) -> list[Field]:
    """The rows of a list of tolerations."""
    return [
        Field(field, [[TOLERATION], [OTHER], [TOLERATION, OTHER]], HUB, [[{}], [{"key": "a b"}]]),
        Field(f"{field}[].key", ["a", "b"], _tolerating(field), ["a b"]),
        Field(f"{field}[].key", ["a", "b"], {**HUB, field: [EVERY_TAINT]}, ["a b"], about="with Exists"),
        Field(
            f"{field}[].operator",
            ["Equal", "Exists"],
            {**HUB, field: [{"key": "a"}]},
            ["Is"],
            stays=_created("Equal", "Exists"),
        ),
        Field(f"{field}[].value", ["c", "d"], _tolerating(field), ["a b"]),
        Field(f"{field}[].effect", EFFECTS, _tolerating(field), ["No"], stays=_created(*EFFECTS)),
        Field(f"{field}[].tolerationSeconds", [9, 10], _tolerating(field, effect="NoExecute")),
    ]


FIELDS = [
    Field("upstreamUrl", ["docker.io", "quay.io", "https://ghcr.io"], {}, ["http://a", "a/b", "a:70000"]),
    Field("registryHost", ["r.example.com", "r.example.com:5000"], HUB, ["a/b"]),
    Field("credentialsSecret", ["login@", "other@"], LOGIN, ["A"]),
    Field(
        "credentialsSecret",
        ["login@", "other@"],
        HUB,
        ["A"],
        about="that is exposed",
        nothing={"change to value 2": EXPOSED},
        stays={"remove": EXPOSED},
        differs={"set": EXPOSED},
    ),
    Field(
        "allowUnauthenticatedReaders",
        [True, False],
        {**HUB, "credentialsSecret": "login@"},
        stays={"set": EXPOSED},
        differs=dict.fromkeys(("remove", "change to value 2"), EXPOSED),
    ),
    Field("fallback", ["None", "Upstream"], HUB, ["Mirror"], stays=_created("None", "Upstream")),
    Field(
        "storage",
        [{"size": "30Gi", "storageClassName": "fast@"}, {"size": "40Gi", "storageClassName": "fast@"}],
        HUB,
        stays={"change to value 2": SHRINKS},
        differs=dict.fromkeys(("set", "remove", "empty"), SHRINKS),
    ),
    Field(
        "storage.size",
        ["30Gi", "40Gi"],
        {**HUB, "storage": {"storageClassName": "fast@"}},
        ["0", "5XB", "1m"],
        stays=dict.fromkeys(("set", "change to value 2"), SHRINKS),
        differs={"remove": SHRINKS},
    ),
    Field(
        "storage.storageClassName",
        ["fast@", "slow@"],
        HUB,
        ["A"],
        differs=dict.fromkeys(("set", "remove", "change to value 2"), SHRINKS),
    ),
    Field("ttl", ["24h", "0s", "1h30m"], HUB, ["1d", "-1h"]),
    Field("image", ["registry.example.com/registry:2", "registry.example.com/registry:3"], HUB, ["A:", "a b"]),
    Field("priorityClassName", ["important@", "other@"], HUB, ["system-node-critical", "A"]),
    Field("resources", [{"limits": AMOUNTS}, {"requests": AMOUNTS}], HUB, [{"requests": {"cpu": "17"}}]),
    Field("resources.requests", [{"cpu": "200m"}, AMOUNTS, {"cpu": 1}], HUB, [{"gpu": "1"}, {"memory": "65Gi"}]),
    Field("resources.limits", [{"cpu": "2"}, {"cpu": "2", "memory": "1Gi"}], HUB, [{"cpu": "-1"}, {"memory": "1x"}]),
    *_of_tolerations("tolerations"),
    *_of_tolerations("registryTolerations"),
]


def shown(spec: Object) -> Object:
    """Return the values that the resources of a mirror must have for a spec."""
    named = spec["upstreamUrl"].removeprefix("https://")
    upstream = "registry-1.docker.io" if named == "docker.io" else named
    host, wanted = spec.get("registryHost", named), spec.get("resources", {})
    resources = {name: {**of, **wanted.get(name, {})} for name, of in DEFAULTS.items()}
    priority = spec.get("priorityClassName", "kube-chores-mirrors")
    return {
        "upstream": f"https://{upstream}",
        "ttl": spec.get("ttl", "168h"),
        "image": spec.get("image", "docker.io/library/registry:3"),
        "resources": resources,
        "login": spec.get("credentialsSecret"),
        "priority": [priority, priority],
        "registryTolerations": _without_empty(spec.get("registryTolerations", [])),
        "tolerations": _without_empty(spec.get("tolerations", [EVERY_TAINT])),
        "host": host,
        "beside": None if spec.get("fallback") == "None" else f"https://{upstream}",
        "size": spec.get("storage", {}).get("size", "20Gi"),
        "class": spec.get("storage", {}).get("storageClassName"),
    }


def _without_empty(tolerations: list[Object]) -> list[Object]:
    return [{key: value for key, value in each.items() if value != ""} for each in tolerations]


def found(resources: Object) -> Object:
    """Return these values of the resources, which are by kind."""
    claim = resources["PersistentVolumeClaim"]
    pod, node = (resources[kind]["spec"]["template"]["spec"] for kind in ("StatefulSet", "DaemonSet"))
    container = next(each for each in pod["containers"] if each["name"] == "registry")
    env = {each["name"]: each for each in container["env"]}
    login = env.get("REGISTRY_PROXY_USERNAME", {}).get("valueFrom", {}).get("secretKeyRef", {}).get("name")
    arguments = dict(each.partition("=")[::2] for each in node["containers"][0]["args"])
    return {
        "upstream": env["REGISTRY_PROXY_REMOTEURL"]["value"],
        "ttl": env["REGISTRY_PROXY_TTL"]["value"],
        "image": container["image"],
        "resources": container["resources"],
        "login": login,
        "priority": [pod["priorityClassName"], node["priorityClassName"]],
        "registryTolerations": pod.get("tolerations", []),
        "tolerations": node.get("tolerations", []),
        "host": arguments["--host"],
        "beside": arguments.get("--upstream"),
        "size": claim["spec"]["resources"]["requests"]["storage"],
        "class": claim["spec"].get("storageClassName"),
    }
