"""The demo, and its output in the README."""

import re
from pathlib import Path

import yaml

from kubesandbox import Sandbox
from tests.api.conftest import runs
from tests.apis import sandbox_api
from tests.conftest import Chores
from tests.worlds import at, namespace_object, secret

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()


def test_the_demo_runs_and_the_readme_quotes_it(chores: Chores) -> None:
    done = chores("demo")

    assert done.returncode == 0, done.stderr
    quoted = re.search(r"<!-- demo.*?-->\n```\n(.*?)```\n<!-- end -->", README, re.DOTALL)
    assert quoted
    shown = done.stdout.splitlines()
    assert [line for line in quoted[1].splitlines() if line and line not in shown] == []
    assert "sync-copies: 6 unchanged, 1 conflict (2 rules, 2 sources, 12 namespaces)" in shown
    assert [line for line in shown if line.startswith("fetch-rates: ")] == [
        "fetch-rates: 2 created (2 rates, 1 provider)",
        "fetch-rates: 2 unchanged (2 rates, 1 provider)",
    ]
    assert [line for line in shown if line.startswith("1 USD = 0.8224956063 CHF (ecb, ")]
    repaired = "mirror-audit: 1 created, 4 unchanged, 1 in-progress, 1 serverside-applied (1 mirror)"
    assert repaired in " ".join(line.strip() for line in shown)
    assert [line for line in shown if line.startswith("roll-workloads: ")] == [
        "roll-workloads: 1 annotated (1 workload, 1 source)",
        "roll-workloads: 1 restarted (1 workload, 1 source)",
        "roll-workloads: 1 unchanged (1 workload, 1 source)",
    ]
    assert [line for line in shown if line.startswith("farm-pods: ")] == [
        "farm-pods: 2 created (2 pods, 1 namespace)",
        "farm-pods: 1 created, 1 unchanged (2 pods, 1 namespace)",
    ]


def test_the_first_rule_of_the_readme_copies(sandbox: Sandbox, tmp_path: Path) -> None:
    first = re.search(r"kubectl apply -f - <<EOF\n(.*?)^EOF$", README, re.DOTALL | re.MULTILINE)
    assert first
    api = sandbox_api(sandbox, tmp_path)
    for name in ("team-x", "other"):
        api.put(namespace_object(name))
    source = api.put(secret("default", "smtp-login", labels={"share": "teams-smtp"}))
    api.put(yaml.safe_load(first[1]))

    ran = runs("sync-copies", api.service_account_kubeconfig("kube-chores", "sync-copies"))()

    assert ran.summary == {"created": 1}
    assert api.read(at("team-x", source))["data"] == source["data"]
