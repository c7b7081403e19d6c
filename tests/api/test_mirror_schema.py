"""The API server, files and the job accept the same RegistryMirrors."""

import json
from pathlib import Path

import msgspec
import pytest

from jobs.core.mirror_audit.desired import NODE_IMAGE, Mirror
from jobs.core.mirror_audit.registry_mirrors import RegistryMirror, Spec, parse_registry_mirror
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head
from tests.api.conftest import Run
from tests.apis import Api, Object
from tests.mirrors import NAMESPACE, registry_mirror

HEX = 64 * "a"
LONG = ".".join(["a" * 62] * 4)  # 251 characters
NOW = {"tolerationSeconds": 1, "effect": "NoExecute"}
# Values by field: valid ones, and others.
VALUES: dict[str, tuple[list[object], list[object]]] = {
    "upstreamUrl": (
        [
            *("a", "a:1", "a:9999", "a:65535", "https://a:443", "registry.example.com:60000", "a--b", "127.0.0.1:5000"),
            *(f"{LONG}.a", f"https://{LONG}.a"),
        ],
        [
            *("", "a:", "a:0", "a:01", "a:65536", "a:65540", "a:66000", "a:70000", "a:99999", "a:100000", "a\n"),
            *("https://", "http://a", "https://https://a", "A", "a_b", "a..b", "-a", "a-", "a/b", "a:b", "a@b"),
            "\u00e9",
            *(f"{LONG}.aa", f"https://{LONG}.aa", f"{LONG}:443", "a" * 64, "[::1]:5000"),
        ],
    ),
    "registryHost": (
        ["a", "a:65535", f"{LONG}.a"],
        ["..", "_default", "a:65536", "a:99999", "https://a", f"{LONG}.aa", f"{LONG}:80", "a/b", "a\n"],
    ),
    "image": (
        [
            *("registry", "registry:3", "a/b", "localhost:5000/a", "a.b/c/d:e_f.G-1", "a__b", "a---b/c", "A.b:5/c:D"),
            "a:1/b:2",
            *(f"a@sha256:{HEX}", f"a:1@sha256:{HEX}", f"a@sha512:{HEX}{HEX}", f"a:{'1' * 128}"),
        ],
        [
            *("Registry", "a:", "a@", "a//b", "a/", "/a", "a:b:c", "a@b@c", "a b", "a\n", "a___b", "a..b", "-a", "a-"),
            *(f"a@sha256:{HEX[1:]}", f"a@sha256:{HEX}a", f"a@sha256:{HEX.upper()}", f"a@md5:{HEX}", f"a:{'1' * 129}"),
            *("https://a/b", "a/B", ".", "a:-1", "a" * 513, "a..b/c"),
        ],
    ),
    "storage.size": (
        ["1", "1Gi", "1.5Gi", "20000M", "1k", "9Ei"],
        ["", "0", "0Gi", "-1Gi", "+1Gi", "1 Gi", "1gi", "1K", "1.", ".5Gi", "1e3", "1m", "1n", "1Gi\n", "\u0661Gi", 1],
    ),
    "resources.limits.memory": (
        ["1", "0", "1.5Gi", "500m", 0, 5, "64Gi", 2**36],
        ["", "-1", "1e3", "1n", "x", -1, 1.5, "1Gi\n", "\u0661", True, "1" * 33, "65Gi", "1Ei", 2**36 + 1, 2**62],
    ),
    "resources.requests.cpu": (["1", 1, "16", 16, "16000m"], ["-1", -1, "100", 17, "16001m", "16.1", "1Gi"]),
    "resources.requests.ephemeral-storage": (["64Gi"], ["65Gi"]),
    "resources": (
        [
            *({"requests": {"cpu": "500m"}, "limits": {"cpu": "0.5"}}, {"requests": {"memory": "1Gi"}}),
            *({"limits": {"memory": "1Mi"}}, {"requests": {"cpu": 2}, "limits": {"memory": 2**20}}),
        ],
        [
            *({"requests": {"cpu": "501m"}, "limits": {"cpu": "0.5"}}, {"requests": {"cpu": 2}, "limits": {"cpu": 1}}),
            {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": 1, "memory": "1G"}},
        ],
    ),
    # What takes devices and memory of the node from other pods.
    "resources.limits.example": ([], ["0", "1", 1]),
    **dict.fromkeys(
        ("tolerations", "registryTolerations"),
        (
            [
                *([], [{"operator": "Exists"}], [{"operator": "Exists", "key": "", "value": ""}], [{"key": "a"}]),
                *([{"key": f"a-b.c/A_b.c-{'d' * 55}"}], [{"key": "a", "value": ""}], [{"key": "a", **NOW}]),
                [{"key": "a", "operator": "Equal", "value": f"A_b.c-{'d' * 57}"}],
            ],
            [
                *([{}], [{"key": "a"}, {"key": "a", "operator": "Exists", "value": "b"}]),
                *([{"operator": "Exists", "value": "b"}], [{"key": "a", "tolerationSeconds": 1}]),
                [{"key": "a", "tolerationSeconds": 1, "effect": "NoSchedule"}],
                *([{"key": key}] for key in ("bad key!", "/a", "a/", "a/b/c", "A/b", "-a", "a-", "a" * 64, "a\n")),
                *([{"key": "a", "value": value}] for value in ("bad value!", "-a", "a-", "a" * 64, "a\n", "a/b")),
            ],
        ),
    ),
    "priorityClassName": (["a", "systems", "a.b"], ["system-cluster-critical", "system-node-critical", "system-x", 1]),
}


def with_value(field: str, value: object, name: str) -> Object:
    """Return a RegistryMirror with a value in a field of its spec."""
    document = registry_mirror(name)
    *outer, last = field.split(".")
    inside = document["spec"]
    for each in outer:
        inside = inside.setdefault(each, {})
    inside[last] = value
    return document


@pytest.mark.parametrize("field", VALUES)
def test_the_server_accepts_exactly_the_specs_that_the_job_accepts(
    api: Api, audit: Run, installed: Path, tmp_path: Path, field: str
) -> None:
    good, bad = VALUES[field]
    documents = {f"m{number}": with_value(field, value, f"m{number}") for number, value in enumerate([*good, *bad])}
    expected = list(documents)[: len(good)]
    accepted, parsed_by_job = [], []
    for name, document in documents.items():
        code, _, body = api.request("POST", "/apis/kubechores.dev/v1/registrymirrors?dryRun=All", document)
        assert code in (201, 422), body
        accepted += [name] if code == 201 else []
        parsed = parse_registry_mirror(Head(ObjectKey("RegistryMirror", name)), json.dumps(document["spec"]).encode())
        parsed_by_job += [name] if isinstance(parsed, RegistryMirror) else []
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    ran = audit("-f", str(tmp_path))
    in_files = [name for name in documents if f"{name}: spec.{field}" not in ran.stderr]

    assert ran.exit_code == 2
    assert (accepted, parsed_by_job, in_files) == (expected, expected, expected)


@pytest.mark.parametrize("api", [pytest.param("real", marks=pytest.mark.cluster)], indirect=True)
@pytest.mark.parametrize("field", VALUES)
def test_the_api_accepts_the_resources_of_a_mirror_exactly_if_its_spec_is_accepted(
    api: Api, installed: Path, field: str
) -> None:
    good, bad = VALUES[field]
    of_pods = bad if field in ("resources", "tolerations", "registryTolerations") else []
    accepted = []
    for value in (*good, *of_pods):
        spec = msgspec.convert(with_value(field, value, "hub")["spec"], Spec)
        mirror = Mirror(RegistryMirror(Head(ObjectKey("RegistryMirror", "hub")), spec), NAMESPACE, NODE_IMAGE)
        documents = [each.document() for each in mirror.resources]
        answers = [api.request("POST", f"{api.path(each, named=False)}?dryRun=All", each) for each in documents]
        assert {code for code, _, _ in answers} <= {201, 422}, answers
        accepted += [value] if all(code == 201 for code, _, _ in answers) else []

    assert accepted == good
