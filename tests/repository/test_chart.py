"""The generated parts of the Helm chart, and what it repeats of other files. tests/cluster/test_helm.py runs Helm."""

import json
from collections.abc import Iterator
from typing import Any

import click
import yaml

from jobs import __version__
from jobs.__main__ import chores
from jobs.kit.values.registry import CLUSTERS, JOBS, REPAIR
from tests.generated import check, check_table
from tests.manifests import ROOT, Object

CHART = ROOT / "charts" / "kube-chores"
VALUES = (CHART / "values.yaml").read_text()
OF_ANOTHER = {REPAIR: "mirror-audit", CLUSTERS: "sync-copies"}
COMMANDS = {name: OF_ANOTHER.get(name, name) for name in yaml.safe_load(VALUES)["jobs"]}

FLAG = {"enum": [True, False, 1, 0, "true", "false", "1", "0", "yes", "no", "on", "off"]}
OF_EACH_JOB: Object = {
    "enabled": {"type": "boolean"},
    "schedule": {"$ref": "#/$defs/schedule"},
    "suspend": {"type": "boolean"},
    "flags": {"$ref": "#/$defs/flags"},
    "settings": {},
    "resources": {"$ref": "#/$defs/resources"},
    "secrets": {"type": "boolean"},
}
# They are of a run with --currency, which prints a rate and processes no object.
OF_ONE_RATE = {"BASE", "CONFIGMAP", "CURRENCY", "PROVIDER"}


def setting(option: click.Parameter) -> Object:
    """Return the schema of the values that an option allows. Helm makes strings of them."""
    if isinstance(option.type, click.Choice):
        return {"enum": list(option.type.choices)}
    if isinstance(option.type, click.IntRange):
        digits = "^0*[1-9][0-9]*$" if option.type.min else "^[0-9]+$"
        return {"type": ["integer", "string"], "minimum": option.type.min, "pattern": digits}
    return FLAG if isinstance(option.type, click.types.BoolParamType) else {"type": "string"}


def common(one: Object, other: Object) -> Object:
    """Return the schema of what both schemas accept."""
    if "enum" in one and "enum" in other:
        return {"enum": [each for each in one["enum"] if each in other["enum"]]}
    assert one == other
    return one


def settings(*names: str) -> Object:
    """Return the schema of the settings of jobs: the variables of their options, without the prefix.

    A setting of several jobs may have the values that all of them accept.
    """
    commands = [chores.get_command(click.Context(chores), name) for name in names]
    found: Object = {}
    for option in [each for command in commands if command for each in command.params]:
        for variable in option.envvar or ():
            name = variable.removeprefix("CHORES_")
            if variable.startswith("CHORES_") and name not in OF_ONE_RATE:
                found[name] = common(found.get(name, setting(option)), setting(option))
    return {"type": "object", "additionalProperties": False, "properties": dict(sorted(found.items()))}


def test_the_schema_names_the_settings_of_each_job() -> None:
    path = CHART / "values.schema.json"
    schema = json.loads(path.read_text())
    assert set(COMMANDS.values()) == set(JOBS)
    schema["properties"]["settings"] = settings(*COMMANDS.values())
    jobs = schema["properties"]["jobs"]
    jobs["required"] = [*COMMANDS]
    for name, command in COMMANDS.items():
        values = {key: OF_EACH_JOB[key] for key in yaml.safe_load(VALUES)["jobs"][name] if key in OF_EACH_JOB}
        new = {"type": "object", "additionalProperties": False, "required": [*values], "properties": values}
        jobs["properties"].setdefault(name, new)["properties"]["settings"] = settings(command)

    check(path, json.dumps(schema, indent=2) + "\n")


def documented(node: yaml.MappingNode, *path: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the path, the default and the comment of each value that has a comment on the lines before it."""
    lines = VALUES.splitlines()
    for key, value in node.value:
        first = last = key.start_mark.line
        while lines[first - 1].lstrip().startswith("#"):
            first -= 1
        here = (*path, key.value)
        if text := " ".join(line.lstrip(" #") for line in lines[first:last]):
            yield ".".join(here), yaml.safe_load(yaml.serialize(value)), text
        elif isinstance(value, yaml.MappingNode):
            yield from documented(value, *here)


def test_the_table_of_values_is_that_of_the_file() -> None:
    root = yaml.compose(VALUES)
    assert isinstance(root, yaml.MappingNode)
    rows = []
    for path, default, text in documented(root):
        name = path.replace("jobs.sync-copies.", "jobs.JOB.")
        differs = name in ("jobs.JOB.enabled", "jobs.JOB.schedule", "jobs.JOB.resources")
        shown = "below" if differs else json.dumps(default)
        rows.append(f"| `{name}` | {shown if shown == 'below' else f'`{shown}`'} | {text} |")

    assert len(rows) == 35
    check_table(CHART / "README.md", "values", ["| value | default | meaning |", "|---|---|---|", *rows])


def test_the_table_of_jobs_is_that_of_the_file() -> None:
    rows = []
    for name, job in yaml.safe_load(VALUES)["jobs"].items():
        cells = [f"`{name}`", "yes" if job["enabled"] else "no", f"`{job['schedule']}`"]
        cells += [job["resources"]["limits"]["memory"], "yes" if "secrets" in job else ""]
        rows.append(f"| {' | '.join(cells)} |")
    head = ["| job | enabled | schedule | memory limit | has `secrets` |", "|---|---|---|---|---|"]

    check_table(CHART / "README.md", "jobs", [*head, *rows])


def test_the_versions_of_the_chart_are_that_of_the_program() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
