"""tools/image and tools/base-digest, with a fake docker, podman, buildah and skopeo."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import jobs
from tests.manifests import ROOT

IMAGE = f"kube-chores:{jobs.__version__}"
REPOSITORY = "registry.example.com/kube-chores"
DIGEST = f"sha256:{64 * 'a'}"
FAKE = f"""#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in
"push --digestfile "*) printf {DIGEST} >"$3" ;;
"manifest push --all --format oci --digestfile "*) printf {DIGEST} >"$7" ;;
"image inspect "*) printf 'registry.example.com/other@sha256:1\\n{REPOSITORY}@{DIGEST}\\n' ;;
*inspect*) echo "$ANSWER" ;;
*) echo "progress of $1" >&2 ;;
esac
"""


def environment(folder: Path, tool: str, **env: str) -> dict[str, str]:
    """Return the environment of a script that finds this fake program before others."""
    (folder / tool).write_text(FAKE)
    (folder / tool).chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    return {**os.environ, **env, "PATH": path, "TOOL": tool, "CALLS": str(folder / "calls")}


def image(folder: Path, tool: str, **env: str) -> tuple[str, list[str]]:
    """Run tools/image; return its stdout and the calls of the tool."""
    settings = environment(folder, tool, **env)
    done = subprocess.run([ROOT / "tools" / "image"], env=settings, capture_output=True, text=True, check=True)
    return done.stdout, (folder / "calls").read_text().splitlines()


@pytest.mark.parametrize("tool", ["docker", "podman", "buildah"])
def test_a_pushed_image_is_printed_with_the_digest_of_the_registry(tmp_path: Path, tool: str) -> None:
    stdout, calls = image(tmp_path, tool, PUSH=REPOSITORY)

    assert stdout == f"{REPOSITORY}@{DIGEST}\n"
    name = f"{REPOSITORY}:{jobs.__version__}"
    assert [each.split()[0] for each in calls[:2]] == ["info", "build"]
    if tool == "docker":
        assert calls[2:4] == [f"tag {IMAGE} {name}", f"push {name}"]
    else:
        assert calls[2].startswith("push --digestfile ") and calls[2].endswith(f" {IMAGE} docker://{name}")


@pytest.mark.parametrize("tool", ["podman", "buildah"])
def test_an_index_is_built_in_the_order_of_its_platforms_and_pushed(tmp_path: Path, tool: str) -> None:
    stdout, calls = image(tmp_path, tool, PUSH=REPOSITORY, PLATFORMS="linux/arm64,linux/amd64")

    *_, index = calls[-1].split()
    builds = [call.split(" --label ")[0] for call in calls[1:3]]
    assert stdout == f"{REPOSITORY}@{DIGEST}\n"
    assert builds == [f"build --platform linux/{each} --manifest {index}" for each in ("arm64", "amd64")]
    assert calls[3].endswith(f" {index} docker://{REPOSITORY}:{jobs.__version__}")
    assert calls[4:] == [f"manifest rm {index}"]


def test_docker_builds_no_index(tmp_path: Path) -> None:
    settings = environment(tmp_path, "docker", PLATFORMS="linux/arm64,linux/amd64")
    done = subprocess.run([ROOT / "tools" / "image"], env=settings, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "no podman or buildah that works; install one of them to build the image\n"
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize("host", ["localhost:5000", "127.0.0.1:5000"])
def test_a_registry_of_this_machine_needs_no_certificate(tmp_path: Path, host: str) -> None:
    _, calls = image(tmp_path, "buildah", PUSH=f"{host}/kube-chores")

    assert calls[2].startswith("push --digestfile ") and " --tls-verify=false " in calls[2]


def test_without_a_repository_nothing_is_pushed(tmp_path: Path) -> None:
    stdout, calls = image(tmp_path, "podman")

    assert stdout == ""
    assert [each.split()[0] for each in calls] == ["info", "build"]


@pytest.mark.parametrize(
    ("tool", "call"),
    [
        ("docker", f"save --output {{file}} {IMAGE}"),
        ("podman", f"save --quiet --format oci-archive --output {{file}} {IMAGE}"),
        ("buildah", f"push --quiet {IMAGE} oci-archive:{{file}}:{IMAGE}"),
    ],
)
def test_an_archive_is_written(tmp_path: Path, tool: str, call: str) -> None:
    _, calls = image(tmp_path, tool, ARCHIVE=str(tmp_path / "image.tar"))

    assert calls[2:] == [call.format(file=tmp_path / "image.tar")]


def labels(folder: Path, url: str) -> dict[str, str]:
    remote = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "remote.origin.url", "GIT_CONFIG_VALUE_0": url}
    _, calls = image(folder, "buildah", SOURCE_DATE_EPOCH="86400", **remote)
    assert "--timestamp 86400" in calls[1]
    return dict(re.findall(r"--label org\.opencontainers\.image\.(\w+)=(\S+)", calls[1]))


def test_an_image_has_its_version_revision_time_and_source(tmp_path: Path) -> None:
    found = labels(tmp_path, "https://git.example.com/team/kube-chores.git")

    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert found.pop("revision").removesuffix("-dirty") == head.strip()
    assert found == {
        "version": jobs.__version__,
        "created": "1970-01-02T00:00:00Z",
        "source": "https://git.example.com/team/kube-chores.git",
    }


@pytest.mark.parametrize("url", ["https://user:word@git.example.com/team/x.git", "git@git.example.com:x.git", "/srv/x"])
def test_a_source_that_can_contain_a_password_or_is_not_a_web_page_is_left_out(tmp_path: Path, url: str) -> None:
    assert "source" not in labels(tmp_path, url)


def base_digest(folder: Path, tool: str, answer: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run a copy of tools/base-digest on a Dockerfile; return the process and the new Dockerfile."""
    (folder / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "base-digest", folder / "tools")
    dockerfile = folder / "Dockerfile"
    dockerfile.write_text("ARG BASE=python:3.13-slim@sha256:old\nFROM ${BASE}\n")
    settings = environment(folder, tool, ANSWER=answer)
    done = subprocess.run([folder / "tools" / "base-digest"], env=settings, capture_output=True, text=True, check=False)
    return done, dockerfile.read_text()


def test_the_base_gets_the_digest_of_its_registry(tmp_path: Path) -> None:
    done, dockerfile = base_digest(tmp_path, "skopeo", DIGEST)

    assert done.returncode == 0
    assert dockerfile == f"ARG BASE=python:3.13-slim@{DIGEST}\nFROM ${{BASE}}\n"
    assert (tmp_path / "calls").read_text().endswith(" docker://python:3.13-slim\n")


def test_an_answer_that_is_not_a_digest_changes_nothing(tmp_path: Path) -> None:
    done, dockerfile = base_digest(tmp_path, "skopeo", "unknown")

    assert (done.returncode, done.stderr) == (1, "the registry has no digest of python:3.13-slim: unknown\n")
    assert "@sha256:old" in dockerfile
