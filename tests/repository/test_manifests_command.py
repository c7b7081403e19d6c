"""`chores manifests` prints what kubectl builds from kustomizations of cronjobs/."""

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from jobs.__main__ import chores
from jobs.commands import manifests
from jobs.kit.values.registry import CLUSTERS, JOBS, REPAIR
from tests.apis import Object
from tests.generated import check
from tests.manifests import COMPONENTS, COPIES, FOLDERS, ROOT, dangling
from tests.repository import test_overlays
from tests.repository.test_overlays import (
    IN_ONE_NAMESPACE,
    OF_CLUSTERS,
    OF_COPIES,
    OF_MIRRORS,
    SECRETS,
    Build,
    built,
    folders,
)

build = test_overlays.build  # a fixture

SHARED = ["namespace", "crds", "policies", "view"]
# The folders and components that a kustomization of one job lists.
KUSTOMIZATIONS: dict[str, tuple[list[str], list[str]]] = {
    job: ([job], [f"components/secrets/{job}"] if (ROOT / "cronjobs/components/secrets" / job).exists() else [])
    for job in JOBS
} | {REPAIR: ([REPAIR], []), CLUSTERS: ([CLUSTERS], [])}


def printed(*arguments: str) -> list[Object]:
    done = CliRunner().invoke(chores, ["manifests", *arguments])
    assert done.exit_code == 0, done.output
    return list(yaml.load_all(done.stdout, yaml.CSafeLoader))


def error(*arguments: str) -> str:
    done = CliRunner().invoke(chores, ["manifests", *arguments])
    assert (done.exit_code, done.stdout) == (2, "")
    return done.stderr.splitlines()[-1]


def key(obj: Object) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def by_key(objects: list[Object]) -> dict[tuple[str, str, str], Object]:
    assert len({key(obj) for obj in objects}) == len(objects)
    return {key(obj): obj for obj in objects}


def test_the_shipped_manifests_are_what_kubectl_builds(build: Build) -> None:
    components = folders("cronjobs", [*COMPONENTS, *(f"components/{each}" for each in OF_COPIES)])
    done = build(top={"resources": folders("cronjobs", FOLDERS), "components": components})
    documents = done.stdout.split("---\n")
    shipped = [yaml.load(each, yaml.CSafeLoader) for each in documents]
    pairs = zip(documents, shipped, strict=True)
    kept = [document for document, obj in pairs if obj["kind"] != "CustomResourceDefinition"]

    check(
        ROOT / "jobs" / "commands" / "manifests.yaml", "# Written by `make docs` from cronjobs/.\n" + "---\n".join(kept)
    )
    assert manifests.shipped() == shipped


def test_the_default_is_the_default_installation_in_the_same_order(build: Build, tmp_path: Path) -> None:
    default = build(top={"resources": ["cronjobs"]})
    assert [key(obj) for obj in printed()] == [key(obj) for obj in built(default)]

    (tmp_path / "printed.yaml").write_text(CliRunner().invoke(chores, ["manifests"]).stdout)
    again = build(top={"resources": ["printed.yaml"]})

    assert again.stdout == default.stdout, "kubectl reads the printed YAML as the same values"


@pytest.mark.parametrize("job", KUSTOMIZATIONS)
def test_one_job_is_what_a_kustomization_with_its_folder_builds(job: str, build: Build) -> None:
    resources, components = (folders("cronjobs", names) for names in KUSTOMIZATIONS[job])
    for_users = "cronjobs/components/secrets/view"
    listed = {"resources": [*folders("cronjobs", SHARED), *resources], "components": [for_users, *components]}

    objects = printed("--only", job)

    assert by_key(objects) == by_key(built(build(top=listed)))
    assert dangling(objects) == []


def test_more_to_copy_is_what_a_kustomization_with_its_components_builds(build: Build) -> None:
    components = folders("cronjobs/components", ["secrets/view", "secrets/sync-copies", *OF_COPIES])
    listed = {"resources": folders("cronjobs", [*SHARED, "sync-copies"]), "components": components}

    objects = printed("--only", "sync-copies", *(word for kind in COPIES for word in ("--copies", kind)))

    assert by_key(objects) == by_key(built(build(top=listed)))


def test_more_to_copy_is_part_of_an_installation_only_by_name() -> None:
    every = [word for kind in COPIES for word in ("--copies", kind)]
    default = by_key(printed())

    for kind, resource in COPIES.items():
        more = by_key(printed("--copies", kind))
        assert default.items() <= more.items()
        assert {name for _, _, name in more.keys() - default.keys()} == {
            f"kube-chores-{who}-{resource}" for who in ("sync-copies", "view")
        }
    assert {name for kind, _, name in by_key(printed("--namespace", "team-b", *every)) if kind == "ClusterRole"} >= {
        name
        for resource in COPIES.values()
        for name in (f"team-b-sync-copies-{resource}", f"kube-chores-view-{resource}")
    }


def test_several_jobs_are_what_each_of_them_needs() -> None:
    every = [printed("--only", job) for job in KUSTOMIZATIONS]

    assert by_key(printed(*(word for job in KUSTOMIZATIONS for word in ("--only", job)))) == by_key(
        list({key(obj): obj for objects in every for obj in objects}.values())
    )


def test_another_namespace_is_what_kustomizations_build_but_for_the_names_of_cluster_roles(build: Build) -> None:
    inner = {
        "namespace": "team-b",
        "resources": folders("../cronjobs", ["namespace", *IN_ONE_NAMESPACE]),
        "components": folders("../cronjobs/components", [*SECRETS, OF_CLUSTERS]),
    }
    outer = {
        "resources": ["inner", *folders("cronjobs", ["crds", "policies", "view", "mirror-namespaces"])],
        "components": folders("cronjobs/components", ["secrets/view", *OF_MIRRORS]),
    }
    done = build(inner=inner, top=outer)
    of_a_job = rf"(?m)^(.*name: )kube-chores-((?:{'|'.join(KUSTOMIZATIONS)})(?!-events)\b)"
    done.stdout = re.sub(of_a_job, r"\1team-b-\2", done.stdout)

    objects = printed("--namespace", "team-b", *(word for job in KUSTOMIZATIONS for word in ("--only", job)))

    assert by_key(objects) == by_key(built(done))
    assert dangling(objects) == []


def test_two_installations_share_only_what_exists_once_in_a_cluster() -> None:
    first, second = (by_key(printed(*arguments)) for arguments in ((), ("--namespace", "team-b")))
    shared = [first[each] for each in first.keys() & second.keys()]

    assert all(first[key(obj)] == second[key(obj)] for obj in shared if obj["kind"] != "RoleBinding")
    cluster_roles = {obj["metadata"]["name"] for obj in shared if obj["kind"].startswith("ClusterRole")}
    assert cluster_roles == {
        f"kube-chores-{name}" for name in ("adopt", "restore", "view", "view-secrets", "farm-view", "farm-edit")
    }
    assert {obj["metadata"].get("namespace") for obj in shared} == {None}


@pytest.mark.parametrize("name", ["123", "1e3", "0o17"])
def test_a_namespace_that_looks_like_a_number_stays_a_text_for_kubectl(name: str, build: Build, tmp_path: Path) -> None:
    arguments = ["manifests", "--only", "farm-pods", "-n", name]
    (tmp_path / "printed.yaml").write_text(CliRunner().invoke(chores, arguments).stdout)

    objects = built(build(top={"resources": ["printed.yaml"]}))

    assert {obj["metadata"].get("namespace") for obj in objects} == {None, name}


def test_an_image_is_set_in_all_cron_jobs() -> None:
    image = f"registry.example.com:5000/kube-chores@sha256:{64 * 'a'}"
    objects = printed("--image", image, "--only", "sync-copies", "--only", "mirror-repair")
    text = yaml.safe_dump_all(obj for obj in objects if obj["kind"] == "CronJob")

    assert re.findall(r"image: (.*)", text) == 3 * [image]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "sync-copy"), "'--only': 'sync-copy' is not a job; did you mean sync-copies?"),
        (("--only", "x"), "'--only': 'x' is not a job; use one of sync-copies, fetch-rates, mirror-audit, "),
        (("--copies", "secrets"), "'--copies': 'secrets' is not one of 'network-policies', 'limit-ranges', "),
        (
            ("--only", "farm-pods", "--copies", "limit-ranges"),
            "'--copies': only sync-copies copies; add --only sync-copies",
        ),
        (("--namespace", "Team_B"), "'Team_B' is not a valid namespace name."),
        (("--namespace", ""), "'' is not a valid namespace name."),
        (("-n", "kube-chores-nodes"), "'kube-chores-nodes' has another purpose; use a namespace for the jobs alone"),
        (("-n", "kube-system"), "'kube-system' has another purpose; use a namespace for the jobs alone"),
        (("--image", "Kube-Chores:1"), "'Kube-Chores:1' is not an image; use a name such as registry.example.com/"),
        (("--image", ""), "'' is not an image; "),
        (("--image", "a/b:1\n"), "'a/b:1\\n' is not an image; "),
    ],
)
def test_a_value_that_is_not_valid_is_an_error_and_nothing_is_printed(arguments: tuple[str, ...], message: str) -> None:
    assert message in error(*arguments)
