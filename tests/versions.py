"""Run the tests of API servers on each Kubernetes version in tools/kubernetes/versions: `make test-versions`.

A version that passes gets its row in docs/supported-versions.md. A version that fails keeps its old row.
"""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path

import click

from tests.control_plane import ROOT
from tests.generated import END, with_rows
from tests.policies import has_policies

PAGE = ROOT / "docs" / "supported-versions.md"
BEGIN = "<!-- written by `make test-versions` -->"
HEAD = ["| Kubernetes | with admission policies | tests passed | tests skipped |", "|---|---|---|---|"]
SUITES = [
    "tests/contract",
    "tests/api",
    "tests/cluster/test_strict_fields.py",
    "tests/cluster/test_install.py::test_the_server_accepts_every_sample",
]
POLICIES = ["tests/cluster/test_policies.py"]


def listed() -> list[str]:
    """Return the versions, as v1.36.3, newest first."""
    lines = (ROOT / "tools" / "kubernetes" / "versions").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def rows(page: str) -> dict[str, str]:
    """Return the rows of the page's table by their version, as v1.36.3."""
    table = page.partition(BEGIN)[2].partition(END)[0]
    return {f"v{row.split()[1]}": row for row in re.findall(r"^\| \d.*", table, re.M)}


def with_versions(page: str, new: Mapping[str, str]) -> str:
    """Return the page with new rows, without the rows of versions that are not listed."""
    known = {**rows(page), **new}
    return with_rows(page, BEGIN, [*HEAD, *(known[version] for version in listed() if version in known)])


def main(versions: list[str]) -> int:
    """Build and test the versions one after another, and return the exit code."""
    failed = []
    for version in versions:
        click.echo(f"== Kubernetes {version}")
        results = ROOT / "build" / "versions" / f"{version}.xml"
        if passes(version, results):
            PAGE.write_text(with_versions(PAGE.read_text(), {version: row(version, results)}))
        else:
            failed.append(version)
    if failed:
        click.echo(f"failed: {', '.join(failed)}; their rows in {PAGE.relative_to(ROOT)} are old", err=True)
    return int(bool(failed))


def passes(version: str, results: Path) -> bool:
    """Build a version, run its tests, and return whether both succeeded."""
    suites = SUITES + POLICIES * has_policies(version)
    pytest = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-m", "cluster", *suites]
    commands = [[str(ROOT / "tools" / "kubernetes" / "build"), version], [*pytest, f"--junitxml={results}"]]
    # In CI only a test that needs a newer version may be skipped.
    environment = {**os.environ, "KUBERNETES_VERSION": version, "CI": "true"}
    return all(subprocess.run(each, cwd=ROOT, env=environment, check=False).returncode == 0 for each in commands)


def row(version: str, results: Path) -> str:
    """Return the row of a version from the results of pytest, which all passed or were skipped."""
    suite = ET.parse(results).getroot()[0]
    tests, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
    policies = "yes" if has_policies(version) else "no"
    return f"| {version[1:]} | {policies} | {tests - skipped} | {skipped} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or listed()))
