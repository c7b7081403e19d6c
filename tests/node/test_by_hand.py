"""Run jobs by hand, with the commands of the docs."""

import pytest

from tests.apis import Api
from tests.node.kubectl import Jobs, Kubectl
from tests.node.publisher import Publisher
from tests.rates import today
from tests.worlds import at, configmap, content, exchange_rate, rule

pytestmark = pytest.mark.node


def test_the_job_runs_once_by_hand_and_a_dry_run_writes_nothing(api: Api, jobs: Jobs, kubectl: Kubectl) -> None:
    home, team = api.namespace("home"), api.namespace("team")
    source = api.create(configmap(home))
    api.create(rule("settings", home, team))

    kubectl.from_docs("kubectl create job try-dry --from=cronjob/sync-copies")
    assert jobs.end("try-dry") == "Complete"
    assert api.writes() == []
    assert api.get(at(team, source)) is None
    planned = jobs.log("try-dry")

    kubectl.from_docs("kubectl create job try --from=cronjob/sync-copies")
    kubectl.from_docs("kubectl wait job/try")
    done = kubectl.from_docs("kubectl logs job/try -n")
    assert content(api.get(at(team, source))) == content(source)

    row = f"configmap/settings  {team}  created{{}}  from {home}/settings"
    assert row.format(" (dry run)") in planned
    assert row.format("") in done


def test_fetch_rates_by_hand_and_a_job_that_reads_the_rate(
    api: Api, jobs: Jobs, kubectl: Kubectl, publisher: Publisher
) -> None:
    shop = api.namespace("shop")
    rate = api.create(exchange_rate(shop))
    # The docs set a mirror of the provider in this way.
    kubectl(f"set env cronjob/fetch-rates -n kube-chores CHORES_ECB_URL={publisher.url}")

    jobs.create("rates-dry", of="fetch-rates", env={"CHORES_DRY_RUN": "client"})
    assert jobs.end("rates-dry") == "Complete"
    assert api.writes() == []
    kubectl.from_docs("kubectl create job rates --from=cronjob/fetch-rates")
    assert jobs.end("rates") == "Complete"

    row = f"configmap/usd  {shop}  created{{}}  1 EUR = 1.1380 USD of {today()} from ecb"
    assert row.format(" (dry run)") in jobs.log("rates-dry")
    assert row.format("") in jobs.log("rates")
    found = api.read(rate)
    assert found["status"]["rate"] == "1.1380"
    assert reader(api, jobs, shop) == f"1.1380 0.8787346221 {today()}"
    kubectl("set env cronjob/fetch-rates -n kube-chores CHORES_ECB_URL-")


def reader(api: Api, jobs: Jobs, namespace: str) -> str:
    """Return the values that a Job in the namespace reads: one from its environment, others from a volume."""
    (container,) = jobs.template("reader")["spec"]["template"]["spec"]["containers"]
    script = "import os; print(os.environ['USD_PER_EUR'], *(open(f'/rates/{n}').read() for n in ('inverse', 'date')))"
    env = [{"name": "USD_PER_EUR", "valueFrom": {"configMapKeyRef": {"name": "usd", "key": "rate"}}}]
    mount = [{"name": "usd", "mountPath": "/rates", "readOnly": True}]
    command = {"name": "reader", "image": container["image"], "command": ["python3", "-c", script], "env": env}
    spec = {
        "restartPolicy": "Never",
        "containers": [command | {"volumeMounts": mount}],
        "volumes": [{"name": "usd", "configMap": {"name": "usd"}}],
    }
    place = {"name": "reader", "namespace": namespace}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": place, "spec": {"template": {"spec": spec}}}
    api.create(job)
    jobs.kubectl(f"wait job/reader -n {namespace} --for=condition=Complete --timeout=60s")
    return jobs.kubectl(f"logs job/reader -n {namespace}").strip()
