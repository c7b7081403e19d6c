"""What is written from the list of jobs (jobs/kit/values/registry.py) and their CronJobs is up to date."""

import re
import textwrap
from collections.abc import Iterable
from itertools import groupby

import yaml

from jobs.kit.values.registry import ACCOUNTS, DEFAULT_JOBS, JOBS, REPAIR, SETTINGS, module
from tests.generated import check
from tests.manifests import ROOT, minutes

CRONJOBS = ROOT / "cronjobs"
MODULES = [module(job) for job in JOBS]
OWN = [job for job in JOBS if (CRONJOBS / job / "rbac.yaml").exists()]  # the others have a folder of their own shape
RUNS = {1: "every hour", 4: "every 15 minutes", 12: "every five minutes", 60: "every minute"}
LATE = {60: "10 minutes", 12: "30", 4: "an hour", 1: "6 hours"}  # when alerts fire, by runs in an hour
KUSTOMIZATION = """apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [{resources}]
components: [../base]
labels:
  - pairs: {{app.kubernetes.io/component: {job}}}
    includeTemplates: true
"""
VALUES = """  {job}:
    enabled: true
    schedule: "{schedule}"
    suspend: false
{secrets}    flags: []
    settings: {{}}
    resources: {{limits: {{memory: {memory}}}}}
"""


def write(file: str, *replacements: tuple[str, str]) -> None:
    """Check that what matches each pattern in the file is its text, or write it there."""
    text = (ROOT / file).read_text()
    for pattern, new in replacements:
        found = re.findall(pattern, text, re.S | re.M)
        assert found, f"{file} has no {pattern}"
        text = re.sub(pattern, new.replace("\\", r"\\"), text, flags=re.S | re.M)
    check(ROOT / file, text)


def lines(prefix: str, names: Iterable[str], suffix: str = "") -> str:
    return "".join(f"{prefix}{name}{suffix}\n" for name in names)


def cronjob_of(job: str) -> dict[str, str]:
    """Return the schedule and the memory limit of the CronJob of a ServiceAccount."""
    path = CRONJOBS / job / "cronjob.yaml"
    path = path if path.exists() else CRONJOBS / job / "job" / "cronjob.yaml"
    spec = yaml.safe_load(path.read_text())["spec"]
    (container,) = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return {"schedule": spec["schedule"], "memory": container["resources"]["limits"]["memory"]}


def runs_per_hour(job: str) -> int:
    return minutes(cronjob_of(job)["schedule"])


def test_the_layers_have_each_job() -> None:
    of_core = lines("    jobs.core.", [*MODULES, "status"])
    layer = " | ".join(MODULES)
    write(
        ".importlinter",
        (r"(?<=commands\n)    sync_copies .*?\n", f"    {layer}\n"),
        (r"(?<=status\n)    sync_copies .*?\n", f"    {layer} | mirror_cache\n"),
        (r"    jobs\.core\.sync_copies\n(    jobs\.core\.\w+\n)+(?=forbidden)", of_core),
    )


def test_the_kustomizations_have_each_job() -> None:
    for job in OWN:
        more = sorted(path.name for path in (CRONJOBS / job).glob("*.yaml") if path.name != "kustomization.yaml")
        first = [name for name in ("rbac.yaml", "cronjob.yaml") if name in more]
        resources = ", ".join([*first, *sorted({*more} - {*first})])
        path = CRONJOBS / job / "kustomization.yaml"
        check(path, KUSTOMIZATION.format(job=job, resources=resources))
    account = '  - patch: "{apiVersion: v1, kind: ServiceAccount, metadata: {name: %s, namespace: kube-chores}}"\n'
    dry_run = "cronjobs/components/dry-run"
    listed = lines("  - ../", DEFAULT_JOBS)
    write("cronjobs/without-secrets/kustomization.yaml", (r"  - \.\./sync-copies\n.*?(?=  - \.\./policies)", listed))
    write(f"{dry_run}/twins/kustomization.yaml", (r"(  - \.\./\.\./\.\./\S+\n)+", lines("  - ../../../", DEFAULT_JOBS)))
    write(f"{dry_run}/kustomization.yaml", (r"(  - patch: .*?\n)+\Z", "".join(account % job for job in DEFAULT_JOBS)))


def test_sync_copies_may_write_no_settings_of_a_job() -> None:
    listed = f"'configmaps': [{', '.join(repr(name) for name in SETTINGS)}],"
    indent = 8 * " "
    filled = textwrap.fill(
        listed, 120, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
    write("cronjobs/policies/copies.yaml", (r"^ +'configmaps': \[.*?\],$", filled))


def test_the_chart_has_each_job() -> None:
    path = ROOT / "charts" / "kube-chores" / "values.yaml"
    text = path.read_text()
    values = yaml.safe_load(text)["jobs"]
    new = [job for job in JOBS if job not in values]
    blocks = ""
    for job in new:
        secrets = "    secrets: true\n" if (CRONJOBS / job / "secrets").exists() else ""
        blocks += VALUES.format(job=job, secrets=secrets, **cronjob_of(job))
    check(path, text.replace("# Of all pods. They run", f"{blocks}# Of all pods. They run"))
    found = {
        job: {"schedule": each["schedule"], "memory": each["resources"]["limits"]["memory"]}
        for job, each in yaml.safe_load(path.read_text())["jobs"].items()
    }
    assert found == {job: cronjob_of(job) for job in ACCOUNTS}


def test_the_alerts_have_each_job_by_its_schedule() -> None:
    groups = {number: [job for job in ACCOUNTS if runs_per_hour(job) == number] for number in LATE}
    for file, label in (
        ("cronjobs/components/monitoring/alerts/alerts.yaml", "chore"),
        ("cronjobs/samples/monitoring/alert.yaml", "cronjob"),
    ):
        matchers = [(jobs[0], ("=~" if jobs[1:] else "=") + f'"{"|".join(jobs)}"') for jobs in groups.values()]
        write(file, *((rf'(?<={label})=~?"{first}(?:\|[^"]*)?"', matcher) for first, matcher in matchers))
        names = {name for _, matcher in matchers for name in re.findall(r"[a-z-]+", matcher)}
        by_hand = [job for job in ACCOUNTS if job not in names and f'"{job}"' not in (ROOT / file).read_text()]
        assert by_hand == [], f"{file} has no alert for their schedules"
    named = {number: filter(None, [", ".join(jobs[:-1]), jobs[-1]]) for number, jobs in groups.items()}
    told = ", ".join(f"{LATE[number]} for {' and '.join(jobs)}" for number, jobs in named.items())
    write("docs/alerts.md", (r"(?<= \| )10 minutes for .*?(?=, 2 days for)", told))


def test_the_docs_have_each_job() -> None:
    runs = {job: runs_per_hour(job) for job in DEFAULT_JOBS}
    by_runs = sorted(runs.items(), key=lambda each: -each[1])
    hour, repair = sum(runs.values()), runs_per_hour(REPAIR)
    per_job = ", ".join(f"`{job}` {number}" for job, number in by_runs)
    install = (ROOT / "docs" / "install.md").read_text()
    load = re.search(r"At rest the CronJobs make .*?(?=\n\n)", install, re.S)
    assert load
    head = f"At rest the CronJobs make {hour} Jobs and as many pods an hour: {per_job}. For each"
    told = re.sub(r"At rest .*? For each", head, " ".join(load[0].split()))
    told = re.sub(r"makes \d+ Jobs more", f"makes {repair} Jobs more", told)
    told = textwrap.fill(told, 120, break_on_hyphens=False, break_long_words=False)
    table = []
    for number, group in groupby(by_runs, key=lambda each: each[1]):
        named = ", ".join(f"`{job}`" for job, _ in group)
        table.append(f"| {named} | {RUNS.get(number, f'{number} times an hour')} |\n")
    table.insert(1, "| `sync-copies-verify` | once a day: it reads the content of all copies |\n")
    folders = ", ".join(f"`cronjobs/{job}`" for job in JOBS)
    write(
        "docs/install.md",
        (r"At rest the CronJobs make .*?(?=\n\n)", told),
        (r"(?<=\| CronJob \| runs \|\n\|---\|---\|\n)(\| .*?\n)+(?=\n)", "".join(table)),
        (r"^\| `cronjobs/sync-copies`, .*?(?= \| `resources` \|)", f"| {folders}"),
    )
    others = lines("  ", (job for job in JOBS if job != "sync-copies"), ": {enabled: false}")
    write("docs/helm.md", (r"(?<=policies: false\njobs:\n)(  [a-z-]+: \{enabled: false\}\n)+", others))
    write("README.md", (r"\d+ short-lived pods an hour", f"{hour} short-lived pods an hour"))
    nav = (ROOT / "mkdocs.yml").read_text()
    new = lines("      - ", (f"{job}: {job}.md" for job in JOBS if f" {job}.md\n" not in nav))
    write("mkdocs.yml", (r"  - Reference:", f"{new}  - Reference:"))
    options = ", ".join([*JOBS, "another command", "manifests", "documentation"])
    write(".github/ISSUE_TEMPLATE/bug.yml", (r"(?<=      options: )\[sync-copies, .*?\]", f"[{options}]"))
