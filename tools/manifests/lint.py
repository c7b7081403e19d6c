"""Review the manifests with kubernetes-validate and kube-score. Usage: lint.py KUBECTL KUBE_SCORE."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import kubernetes_validate
import yaml

HERE = Path(__file__).parent
CRONJOBS = HERE.parent.parent / "cronjobs"
MONITORING = "components/monitoring"  # its alerts are of a CRD, so promtool checks them in tests/monitoring
COPIES = sorted((CRONJOBS / "components/copies").iterdir())  # they patch an account, so they need the default install
FOLDERS = [
    "mirror-repair",
    "mirror-audit/job",
    "mirror-audit/mirrors",
    "mirror-audit/secrets",
    "components/network-policies",
    "components/network-policies/mirrors",
    f"{MONITORING}/dashboard",
    f"{MONITORING}/network-policies/policy",
]
VERSIONS = ["1.30", "1.37"]  # the oldest tested version with admission policies, and the newest
OPTIONAL_CHECKS = ["container-seccomp-profile", "container-ports-check"]


def rendered(kubectl: str) -> str:
    """Return the manifests of the default install with COPIES, and of all FOLDERS."""
    with TemporaryDirectory() as overlay:
        here = Path(overlay).resolve()
        resources, *components = (os.path.relpath(each, here) for each in (CRONJOBS, *COPIES))
        (here / "kustomization.yaml").write_text(yaml.safe_dump({"resources": [resources], "components": components}))
        return built(kubectl, [here, *(CRONJOBS / folder for folder in FOLDERS)])


def built(kubectl: str, folders: list[Path]) -> str:
    """Return the manifests that kubectl builds from each folder."""
    commands = [[kubectl, "kustomize", str(folder)] for folder in folders]
    return "\n---\n".join(subprocess.run(each, capture_output=True, text=True, check=True).stdout for each in commands)


def invalid(objects: list[dict[str, Any]]) -> Iterator[str]:
    """Yield where an object does not match the schema of a version, which must have all of its fields."""
    for obj in objects:
        for version in VERSIONS:
            try:
                kubernetes_validate.validate(obj, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                field = ".".join(map(str, error.path))
                yield f"{obj['kind']} {obj['metadata']['name']}: {field}: {error.message} (Kubernetes {version})"


def reviewed(kube_score: str, manifests: str) -> Iterator[tuple[str, str, str]]:
    """Yield the findings of kube-score: the check, the object as KIND/VERSION/NAMESPACE/NAME, and the summary."""
    optional = [word for check in OPTIONAL_CHECKS for word in ("--enable-optional-test", check)]
    command = [kube_score, "score", "-o", "json", "--kubernetes-version", f"v{VERSIONS[0]}", *optional, "-"]
    done = subprocess.run(command, input=manifests, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"kube-score failed: {done.stderr}")
    for obj in json.loads(done.stdout):
        for check in obj["checks"]:
            if not check["skipped"] and check["grade"] < 10:
                for comment in check["comments"]:
                    yield check["check"]["id"], obj["object_name"], comment["summary"]


def main() -> None:
    """Print the findings that accepted.yaml does not list, and the listed ones that no longer occur."""
    kubectl, kube_score = sys.argv[1:]
    manifests = rendered(kubectl)
    objects = [obj for obj in yaml.safe_load_all(manifests) if obj]
    if problems := list(invalid(objects)):
        sys.exit("\n".join(problems))
    accepted = yaml.safe_load((HERE / "accepted.yaml").read_text())
    used = []
    for check, name, summary in reviewed(kube_score, manifests):
        reasons = [
            each
            for each in accepted
            if (each["check"], each["summary"]) == (check, summary) and fnmatchcase(name, each["objects"])
        ]
        used += reasons
        if not reasons:
            problems.append(f"{name}: {summary} ({check})")
    problems += [
        f"{each['objects']}: {each['summary']} ({each['check']}) no longer occurs: remove it from accepted.yaml"
        for each in accepted
        if each not in used
    ]
    if problems:
        sys.exit("\n".join(problems))
    versions = " and ".join(VERSIONS)
    print(f"{len(objects)} objects are valid in Kubernetes {versions}; kube-score: {len(used)} accepted findings")


main()
