"""docs/outputs.md: `make docs` writes it from real runs of each job's scenarios, and it is checked here."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubesandbox import Sandbox
from tests import embedded
from tests.apis import Api, sandbox_api
from tests.every_job import scenarios
from tests.generated import check
from tests.manifests import ROOT
from tests.worlds import configmap, namespace_object, rule, secret

HEAD = """# Example outputs

What runs print. Written by `make docs` from real runs on the embedded cluster. [Report](report.md) explains the words.
"""
PAGE = ROOT / "docs" / "outputs.md"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Api]:
    """An embedded cluster with the manifests, a platform namespace and two teams, a source and a rule of each type."""
    with Sandbox(of=embedded.installed()) as sandbox:
        api = sandbox_api(sandbox, tmp_path)
        for name in ("platform", "team-billing", "team-shop"):
            api.create(namespace_object(name))
        api.create(configmap("platform", "ca-bundle", data={"ca.crt": "the bundle of 2026"}))
        api.create(secret("platform", "login"))
        api.create(rule("ca", "platform", "team-*"))
        api.create(rule("logins", "platform", "team-*", ruleType="secret"))
        yield api


@pytest.mark.parametrize("title", scenarios())
def test_a_scenario_prints_what_the_docs_show(world: Api, tmp_path: Path, title: str) -> None:
    sections = dict(
        re.findall(r"^## (.*?)\n\n```\n(.*?)\n```$", PAGE.read_text() if PAGE.exists() else "", re.M | re.S)
    )
    sections[title] = scenarios()[title](world, tmp_path)
    parts = [f"## {each}\n\n```\n{sections[each]}\n```\n" for each in scenarios() if each in sections]

    check(PAGE, "\n".join([HEAD, *parts]))
