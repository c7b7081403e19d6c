"""Images with other code than this version, for deliberate bugs and for upgrades."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from tests.buildah import environment
from tests.control_plane import ROOT
from tests.one_node import Node, images

SECONDS = 300.0
_SCRIPT = """
container=$(buildah from --quiet docker-archive:{archive})
packages=$(buildah run "$container" -- sh -c 'echo /app/lib/python3*/site-packages')
buildah run --user 0 "$container" -- rm -rf "$packages/jobs"
buildah copy --quiet "$container" {jobs} "$packages/jobs" >/dev/null
buildah run --user 0 "$container" -- python3 -m compileall -f -q --invalidation-mode unchecked-hash "$packages/jobs"
buildah commit --quiet --rm "$container" {name} >/dev/null
rm -f {file}
buildah push --quiet {name} docker-archive:{file}:{name}
buildah rmi {name} >/dev/null
"""


def build_image(jobs: Path, name: str, file: Path) -> Path:
    """Write an archive of an image: that of this version, with another folder `jobs`.

    Raises:
        RuntimeError: it cannot be built; the message has the output.
    """
    archive = images()[-1]
    words = {"archive": archive, "jobs": jobs, "name": name, "file": file}
    script = _SCRIPT.format(**{key: shlex.quote(str(value)) for key, value in words.items()})
    env = environment(file.parent)
    done = subprocess.run(
        ["sh", "-e", "-c", script], env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode:
        raise RuntimeError(f"no image {name}: {(done.stdout + done.stderr)[-2000:]}")
    return file


def jobs_of(revision: str, folder: Path) -> Path:
    """Write the folder `jobs` of a revision of git into a folder, and return it."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", revision, "jobs"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder / "jobs"


def import_image(node: Node, archive: Path) -> None:
    """Give the node an image."""
    command = [*node.enter, "ctr", "--namespace=k8s.io", "images", "import", str(archive)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=SECONDS)
