"""tools/image, with a fake docker, podman and buildah."""

import os
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
"image inspect "*) printf 'registry.example.com/other@sha256:1\\n{REPOSITORY}@{DIGEST}\\n' ;;
*) echo "progress of $1" >&2 ;;
esac
"""


def image(folder: Path, tool: str, **env: str) -> tuple[str, list[str]]:
    """Run tools/image; return its stdout and the calls of the tool."""
    (folder / tool).write_text(FAKE)
    (folder / tool).chmod(0o755)
    calls = folder / "calls"
    path = f"{folder}:{os.environ['PATH']}"
    settings = {**os.environ, **env, "PATH": path, "TOOL": tool, "CALLS": str(calls)}
    done = subprocess.run([ROOT / "tools" / "image"], env=settings, capture_output=True, text=True, check=True)
    return done.stdout, calls.read_text().splitlines()


@pytest.mark.parametrize("tool", ["docker", "podman", "buildah"])
def test_a_pushed_image_is_printed_with_the_digest_of_the_registry(tmp_path: Path, tool: str) -> None:
    stdout, calls = image(tmp_path, tool, PUSH=REPOSITORY)

    assert stdout == f"{REPOSITORY}@{DIGEST}\n"
    assert [each.split()[0] for each in calls[:3]] == ["info", "build", "tag"]
    assert calls[2] == f"tag {IMAGE} {REPOSITORY}:{jobs.__version__}"
    assert calls[3].startswith("push ") and calls[3].endswith(f"{REPOSITORY}:{jobs.__version__}")


def test_without_a_repository_nothing_is_pushed(tmp_path: Path) -> None:
    stdout, calls = image(tmp_path, "podman")

    assert stdout == ""
    assert [each.split()[0] for each in calls] == ["info", "build"]
