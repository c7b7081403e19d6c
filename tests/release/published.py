"""Build a release of the last commit, and install it as users do, who have only helm, kubectl and git."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import jobs
from tests import canary
from tests.buildah import ARCHITECTURE, environment
from tests.control_plane import ROOT, programs
from tests.helm import PROGRAM as HELM
from tests.pages import command
from tests.upstream import Access, accesses
from tools.release import SOURCE

PLATFORMS = ("linux/amd64", f"linux/{ARCHITECTURE}")


@dataclass(frozen=True)
class Release:
    """What `make release` pushed to the registry at `host` from the tagged clone `source` within `seconds`."""

    host: str
    log: Path
    source: Path
    digests: dict[str, str]
    seconds: float

    @property
    def archive(self) -> Path:
        """The images of all platforms."""
        return self.source / "dist" / f"kube-chores-{jobs.__version__}.oci.tar"

    @property
    def image(self) -> str:
        """The image as manifests name it."""
        return f"{self.host}/kube-chores@{self.digests['image']}"

    def pulls(self) -> set[str]:
        """Return the references of manifests of the image that the node's containerd requested."""
        requests: list[Access] = accesses(self.log.read_text())
        of_node = [each for each in requests if each.agent.startswith("containerd/") and "/manifests/" in each.path]
        return {each.path.partition("/v2/kube-chores/manifests/")[2] for each in of_node}


def clone(folder: Path) -> Path:
    """Clone the last commit, and commit what a release needs: a section of the version, and its tag."""
    git = ["git", "-C", str(folder), "-c", "user.name=test", "-c", "user.email=test@example.com"]
    run("git", "clone", "--quiet", str(ROOT), str(folder))
    (folder / ".tools").symlink_to(ROOT / ".tools")
    changelog, version = folder / "CHANGELOG.md", jobs.__version__
    changelog.write_text(
        changelog.read_text().replace(f"## [Unreleased] {version}\n", f"## [{version}] - 2026-01-01\n")
    )
    run(*git, "commit", "--quiet", "--all", "--allow-empty", "--message", f"Release {version}")
    run(*git, "tag", f"v{version}")
    return folder


def build(source: Path, host: str) -> dict[str, str]:
    """Run `make release`, and return the digests that it pushed, by what they are of."""
    installed = f"--assume-old={sys.prefix}/installed-release"  # of this checkout, whose environment runs the tests
    base = run(str(ROOT / "tools/node/images"), "base").strip()
    settings = [f"REGISTRY={host}", f"PLATFORMS={','.join(PLATFORMS)}", "TOOL=buildah", f"BASE={base}"]
    env = environment(source.parent)
    run("make", "-C", str(source), "release", f"VENV={sys.prefix}", installed, *settings, env=env)
    lines = (source / "dist" / "digests.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def remove_images(folder: Path) -> None:
    """Remove the images of the builds, which have no name, from the storage that they share with tools/node/images."""
    run("buildah", "rmi", "--prune", env=environment(folder))


def run(*words: str, env: Mapping[str, str] = {}) -> str:
    """Run a command, which must succeed. Return its stdout."""
    done = subprocess.run(words, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


class User:
    """A user in an empty folder, who gets from a Git server at `github` what is on GitHub for others."""

    def __init__(self, folder: Path, kubeconfig: Path, release: Release, github: str) -> None:
        self.release = release
        self.home, self.served, tools = folder / "home", folder / "served", folder / "bin"
        self.home.mkdir()
        tools.mkdir()
        for program in (HELM, programs() / "kubectl"):
            (tools / program.name).symlink_to(program)
        (self.home / ".gitconfig").write_text(f'[url "{github}"]\n\tinsteadOf = https://github.com/\n')
        repository = self.served / f"{urlsplit(SOURCE).path.strip('/')}.git"
        repository.parent.mkdir(parents=True)
        repository.symlink_to(release.source / ".git")
        self.env = {
            "PATH": f"{tools}:/usr/bin:/bin",
            "HOME": str(self.home),
            "KUBECONFIG": str(kubeconfig),
            "LC_ALL": "C",
        }

    def __call__(self, line: str) -> str:
        """Run a shell command in the home folder; it must succeed. Return its stdout."""
        done = self.run(line)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def run(self, line: str) -> "subprocess.CompletedProcess[str]":
        """Run a shell command in the home folder."""
        done = subprocess.run(
            line, shell=True, cwd=self.home, env=self.env, capture_output=True, text=True, timeout=600, check=False
        )
        canary.observed(line, done.stdout + done.stderr)
        return done

    def from_docs(self, beginning: str) -> str:
        """Run the command of the docs that begins with these words, with the registry of the release."""
        line = command(beginning)
        if "oci://" in line:
            line = line.replace("ghcr.io/OWNER/", f"{self.release.host}/") + " --plain-http"
        return self(line)

    def download(self, name: str) -> None:
        """Get a file of the release."""
        shutil.copy(self.release.source / "dist" / name, self.home)

    def append(self, name: str, text: str) -> None:
        """Append text to a file of the home folder."""
        with (self.home / name).open("a") as file:
            file.write(text)

    def repository_is_served(self) -> bool:
        """Whether git finds the repository."""
        return self.run(f"git ls-remote --exit-code {SOURCE}.git v{jobs.__version__}").returncode == 0

    def objects(self) -> set[str]:
        """Return kind, namespace and name of all objects in the cluster, except Events."""
        kinds = [kind for kind in self("kubectl api-resources --verbs=list -o name").split() if "events" not in kind]
        columns = "custom-columns=K:.kind,NS:.metadata.namespace,N:.metadata.name"
        lines = self(f"kubectl get {','.join(kinds)} -A --no-headers -o {columns}").splitlines()
        return {" ".join(line.split()) for line in lines}
