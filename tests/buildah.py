"""Images with buildah, whose files are below .tools/node. Those for arm64 run on x86-64 by qemu-user-static."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.control_plane import ROOT
from tests.one_node import path, registry

ARCHITECTURE = "arm64"
STORAGE = ROOT / ".tools/node/storage.conf"  # tools/node/images writes it
INTERPRETER = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")  # tools/emulation registers it
SECONDS = 1800.0  # for a build on a busy machine


def impossible() -> str | None:
    """Return why this machine cannot run programs for arm64 with any programs installed, or None."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return f"programs for arm64 are emulated on Linux on x86-64, and this is {sys.platform} on {platform.machine()}"
    return None if os.geteuid() == 0 else "to build an image of packages needs root"


def missing() -> str | None:
    """Return why images for arm64 cannot be built and run with what is installed, or None."""
    if reason := impossible():
        return reason
    absent = [str(each) for each in (INTERPRETER, registry()) if not each.exists()]
    return f"no {', '.join(absent)}: run `make release-tools`" if absent else None


def environment(temporary: Path) -> dict[str, str]:
    """Return the environment of buildah with the images of tools/node/images, and this folder for temporary files."""
    return {
        **os.environ,
        "PATH": path(),
        "BUILDAH_ISOLATION": "chroot",
        "CONTAINERS_STORAGE_CONF": str(STORAGE),
        "TMPDIR": str(temporary),
    }


@dataclass(frozen=True)
class Container:
    """A container in the network of this machine. Its programs run as the user of its image."""

    name: str
    temporary: Path

    def run(
        self, *command: str, env: Mapping[str, str] | None = None, volumes: Mapping[Path, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with more environment variables, and with these files and folders mounted."""
        flags = [f"--env={name}={value}" for name, value in (env or {}).items()]
        flags += [f"--volume={outside}:{inside}:ro" for outside, inside in (volumes or {}).items()]
        return subprocess.run(
            ["buildah", "run", *flags, self.name, "--", *command],
            env=environment(self.temporary),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )


@contextmanager
def container(archive: Path, architecture: str, temporary: Path) -> Iterator[Container]:
    """Create a container of an image in an OCI archive, and remove it."""

    def buildah(*arguments: str) -> str:
        command = ["buildah", *arguments]
        done = subprocess.run(command, env=environment(temporary), stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.strip()

    name = buildah("from", "--quiet", f"--arch={architecture}", f"oci-archive:{archive}")
    yield Container(name, temporary)
    buildah("rm", name)
