"""Write the screenshots of docs/status.md: `make screenshots`. The page is of real runs on the embedded cluster."""

import tempfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from jobs.__main__ import chores
from kubesandbox import Sandbox
from tests import embedded
from tests.apis import Api, Object, sandbox_api
from tests.browser import chromium
from tests.manifests import ROOT
from tests.mirrors import NAMESPACE as MIRRORS
from tests.mirrors import Mirrors, registry_mirror
from tests.workloads import workload
from tests.worlds import configmap, exchange_rate, namespace_object, rule, secret

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMESPACE = "kube-chores"
# Width and height, colors, and the section at the top.
SHOTS: dict[str, tuple[int, int, Any, str]] = {
    "light": (1200, 1150, "light", "jobs"),
    "dark": (1200, 1420, "dark", "runs"),
    "phone": (400, 900, "light", "problems"),
}
# Of the CronJobs, in seconds: the age of the last run, the time between two, and how long one takes.
RUNS = {
    "sync-copies": (21, 60, 2),
    "fetch-rates": (700, 3600, 4),
    "mirror-audit": (240, 900, 14),
    "roll-workloads": (130, 300, 3),
    "farm-pods": (170, 300, 2),
    "mirror-repair": (500, 900, 9),
    "sync-copies-verify": (11000, 86400, 31),
}
BRAKED = "fetch-rates: exchangerate/try in team-shop: the rate changed by 31 %, the limit is 20 %"
TEAMS = [f"team-{name}" for name in ("billing", "checkout", "data", "mobile", "payments", "search", "shop", "web")]


def run(api: Api, *arguments: str) -> str:
    """Run a command as admin; return what it prints."""
    done = CliRunner().invoke(chores, [*arguments], env={"KUBECONFIG": str(api.kubeconfig)})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.stdout


def cluster(api: Api) -> None:
    """Create an installation for some teams; the jobs run once, and then something breaks."""
    for name in ("platform", *TEAMS):
        api.put(namespace_object(name))
    for name, kind, targets in (
        ("ca-bundle", "configmap", "team-*"),
        ("proxy", "configmap", "team-*"),
        ("registry-login", "secret", "team-*"),
        ("payment-keys", "secret", "team-p*"),
    ):
        labels = {"share": name}
        api.create((configmap if kind == "configmap" else secret)("platform", name, labels=labels))
        api.create(rule(name, "platform", targets, ruleType=kind, selector={"matchLabels": labels}))
    api.create(configmap("team-billing", "ca-bundle"))
    api.create(configmap("team-shop", labels={}))
    api.create(workload("team-shop", "shop"))
    mirrors = Mirrors(api)
    mirrors.node()
    for name, upstream in (("docker-hub", "docker.io"), ("quay", "quay.io")):
        mirrors.deploy(api.create(registry_mirror(name, upstream)))
    rates(api)
    run(api, "sync-copies", "-n", NAMESPACE)
    run(api, "roll-workloads")
    run(api, "mirror-audit")
    api.put(namespace_object("team-new"))
    api.delete(configmap("team-data", "proxy"))
    for changed in (configmap("platform", "ca-bundle"), configmap("team-shop")):
        api.patch(changed, {"data": {"a": "2"}})
    run(api, "sync-copies", "-n", NAMESPACE)
    api.put(namespace_object("team-next"))
    service = {"apiVersion": "v1", "kind": "Service"}
    api.delete({**service, "metadata": {"name": "registry-mirror-quay-headless", "namespace": MIRRORS}})


def rates(api: Api) -> None:
    now = datetime.now(timezone.utc)
    for currency, value, ready, reason in (("USD", "1.1380", "True", "Current"), ("TRY", "41.02", "False", "Jump")):
        made = api.create(exchange_rate("team-shop", currency.lower(), currency=currency))
        condition = {
            "type": "Ready",
            "status": ready,
            "reason": reason,
            "message": "" if ready == "True" else BRAKED.rpartition(": ")[2],
            "lastTransitionTime": f"{now:%FT%TZ}",
        }
        api.patch_status(made, {"rate": value, "date": f"{now - timedelta(days=1):%F}", "conditions": [condition]})


def runs(api: Api) -> None:
    """Set what the controllers of a real cluster write: the runs of the CronJobs."""
    now = datetime.now(timezone.utc)
    for name, (age, every, length) in RUNS.items():
        cronjob = api.call("GET", f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/{name}")
        starts = [now - timedelta(seconds=every * number + age) for number in range(3)]
        for number, start in enumerate(starts):
            finished = f"{start + timedelta(seconds=length):%FT%TZ}"
            failed = name == "fetch-rates" and not number
            job(api, cronjob, f"{name}-{number}", f"{start:%FT%TZ}", finished, BRAKED if failed else "")
        success = starts[1] if name == "fetch-rates" else starts[0]
        times = {
            "lastScheduleTime": f"{starts[0]:%FT%TZ}",
            "lastSuccessfulTime": f"{success + timedelta(seconds=length):%FT%TZ}",
        }
        api.patch_status(cronjob, times)


def job(api: Api, cronjob: Object, name: str, start: str, end: str, message: str) -> None:
    """Create a Job of a CronJob that ended; with a message, its pod failed."""
    spec = cronjob["spec"]["jobTemplate"]["spec"]
    made = api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": owned(name, cronjob), "spec": spec})
    condition = {"type": "Failed" if message else "Complete", "status": "True", "reason": "PodFailurePolicy"}
    ended = {} if message else {"completionTime": end, "succeeded": 1}
    conditions = [{**condition, "lastTransitionTime": end}]
    api.patch_status(made, {"startTime": start, "conditions": conditions, **ended})
    if message:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": owned(f"{name}-x7k2p", made)}
        terminated = {"terminated": {"exitCode": 4, "reason": "Error", "message": message}}
        container = {"name": "chores", "image": "", "imageID": "", "ready": False, "restartCount": 0}
        made = api.create({**pod, "spec": spec["template"]["spec"]})
        api.patch_status(made, {"phase": "Failed", "containerStatuses": [{**container, "state": terminated}]})


def owned(name: str, owner: Object) -> Object:
    """Return the metadata of an object that another one owns."""
    head = {key: owner[key] for key in ("apiVersion", "kind")}
    found = {key: owner["metadata"][key] for key in ("name", "uid")}
    labels = owner["metadata"]["labels"]
    return {"name": name, "namespace": NAMESPACE, "labels": labels, "ownerReferences": [{**head, **found}]}


def take(browser: "Browser", page: Path) -> None:
    for name, (width, height, scheme, section) in SHOTS.items():
        context = browser.new_context(color_scheme=scheme, offline=True, reduced_motion="reduce")
        shown = context.new_page()
        shown.set_viewport_size({"width": width, "height": height})
        shown.goto(page.as_uri() if section == "jobs" else f"{page.as_uri()}#{section}")
        shown.screenshot(path=ROOT / "docs" / f"status-{name}.png")
        if name == "light":
            shown.set_viewport_size({"width": 800, "height": height})
            shown.locator("#matrix").screenshot(path=ROOT / "docs" / "status-matrix.png")


def main() -> None:
    """Write the page, and a picture of each kind."""
    with tempfile.TemporaryDirectory() as folder, Sandbox(of=embedded.installed()) as sandbox:
        api = sandbox_api(sandbox, Path(folder))
        cluster(api)
        runs(api)
        page = Path(folder) / "status.html"
        page.write_text(run(api, "status", "-n", NAMESPACE, "-o", "html"))
        with chromium.started() as browser:
            take(browser, page)


if __name__ == "__main__":
    main()
