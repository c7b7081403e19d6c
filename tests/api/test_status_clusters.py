"""Other clusters in `chores status` and in the metrics, with an inventory of two embedded servers."""

import shlex
from pathlib import Path

from click.testing import CliRunner

from jobs.__main__ import chores
from kubesandbox import Sandbox
from tests.api import test_clusters as of_clusters
from tests.api.conftest import Run
from tests.api.test_clusters import Spoke, fleet
from tests.api.test_status import document, job, status
from tests.apis import Api
from tests.pushgateway import series
from tests.worlds import at, configmap, rule

hub, uid, spokes, push, spaces = (
    of_clusters.hub,
    of_clusters.uid,
    of_clusters.spokes,
    of_clusters.push,
    of_clusters.spaces,
)
JOB = "sync-copies-clusters"


def test_status_has_the_state_of_each_cluster_and_what_to_do(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    source = hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    hub.create(configmap(home, "theme", labels={"copy": "theme"}))
    theme = fleet("theme", home, "team-a", names=[spokes[1].name])
    theme["spec"]["selector"] = {"matchLabels": {"copy": "theme"}}
    hub.create(theme)
    spokes[1].api.create(configmap("team-a", source["metadata"]["name"]))
    push()
    hub.mark()

    found = document(hub)

    assert hub.writes() == []
    first, second = found["clusters"]
    assert (first["name"], first["reason"], first["desired"], first["copies"]) == (spokes[1].name, "Conflict", 3, 2)
    assert first["rules"] == {"settings": "Conflict", "theme": "Synced"}
    assert (second["name"], second["rules"]) == (spokes[0].name, {"settings": "Synced"})
    assert job(found, JOB)["state"] != "not-installed"
    (problem,) = [each for each in found["problems"] if each["job"] == JOB and not each["code"].startswith("job-")]
    assert (problem["code"], problem["object"]["name"]) == ("conflict", "settings")
    assert f"{spokes[1].name} (Conflict)" in problem["reason"]
    words = shlex.split(problem["todo"].rpartition("; see chores ")[2])
    checked = CliRunner().invoke(chores, words, env={"KUBECONFIG": str(hub.kubeconfig)})
    assert (checked.exit_code, "team-a" in checked.stdout, spokes[1].name in checked.stdout) == (3, True, True)
    text = status(hub).stdout
    assert f"{spokes[1].name}  2 of 3  Conflict  1 of 2: settings" in text
    assert f"{spokes[0].name}" in text
    page = status(hub, "-o", "html").stdout
    assert "settings (Conflict)" in page and 'href="#clusters"' in page


def test_a_cluster_that_does_not_answer_is_the_worst_and_hides_no_other(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, tmp_path: Path
) -> None:
    source = hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    spokes[0].api.create(configmap("team-a", source["metadata"]["name"]))
    push()
    spokes[1].sandbox.stop()
    file = tmp_path / "job.prom"

    ran = push("--metrics-file", str(file))
    found = document(hub)["clusters"]

    assert ran.exit_code == 1
    assert [(each["name"], each["reason"], each["copies"], each["desired"]) for each in found] == [
        (spokes[1].name, "Unreachable", None, None),
        (spokes[0].name, "Conflict", 1, 2),
    ]
    assert found[0]["lastRun"]
    assert f"{spokes[1].name}  -       Unreachable  1 of 1: settings" in status(hub).stdout
    text = file.read_text()
    assert f'chore="{JOB}"' in text
    assert series(text, "kube_chores_cluster_ready") == {(spokes[0].name,): 0, (spokes[1].name,): 0}
    assert series(text, "kube_chores_cluster_desired_copies") == {(spokes[0].name,): 2}
    assert series(text, "kube_chores_cluster_copies") == {(spokes[0].name,): 1}
    spokes[1].sandbox = Sandbox(of=spokes[0].sandbox)  # the fixture stops it
    spokes[1].sandbox.start()


def test_a_rule_that_selects_no_cluster_is_a_problem_of_the_rule_and_of_no_cluster(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    hub.create(fleet("mistaken", home, "team-*", names=["typo"]))
    push()

    found = document(hub)

    assert [(each["reason"], each["rules"]) for each in found["clusters"]] == 2 * [("Synced", {"settings": "Synced"})]
    (problem,) = [each for each in found["problems"] if each["job"] == JOB and each["code"] == "nothing-selected"]
    assert problem["object"]["name"] == "mistaken"


def test_the_metric_of_a_cluster_counts_only_rules_that_select_it(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, tmp_path: Path
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    hub.create(fleet("mistaken", home, "team-*", names=["typo"]))
    file = tmp_path / "job.prom"

    push("--metrics-file", str(file))

    assert series(file.read_text(), "kube_chores_cluster_ready") == {(each.name,): 1 for each in spokes}


def test_an_invalid_rule_fires_its_alert_and_none_of_the_job(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, tmp_path: Path
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    hub.create(rule("broken", home, "team-*", metadata={"labels": {"kubechores.dev/job": "mine"}}))
    file = tmp_path / "job.prom"

    ran = push("--metrics-file", str(file))

    text = file.read_text()
    assert ran.exit_code == 2
    assert series(text, "kube_chores_rule_ready") == {("broken",): 0, ("settings",): 1}
    assert series(text, "kube_chores_last_working_timestamp_seconds") == series(
        text, "kube_chores_last_run_timestamp_seconds"
    )


def test_a_rule_that_selects_clusters_no_longer_is_no_problem_of_them(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    source = hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-a"))
    spokes[0].api.create(at("team-a", source))
    push()
    hub.patch(rule("settings", "", ""), {"spec": {"targets": {"clusters": None}}})

    found = document(hub)

    assert found["clusters"] == []
    assert [each for each in found["problems"] if each["job"] == JOB and not each["code"].startswith("job-")] == []
