"""Run Helm, which `make control-plane` builds, with folders of its own."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests import canary
from tests.control_plane import built, programs
from tests.manifests import ROOT, Object
from tests.pages import command

CHART = ROOT / "charts" / "kube-chores"
PROGRAM = built("helm", "helm.sh/helm/v4") / "helm"


def missing() -> str | None:
    """Return why Helm cannot run on this machine, or None."""
    return None if PROGRAM.exists() else f"no {PROGRAM.relative_to(ROOT)}: run `make control-plane`"


def documents(text: str) -> list[Object]:
    """Return the objects in the output of Helm or kubectl."""
    return [each for each in yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) if each]


class Helm:
    """Helm with a kubeconfig, or with none to render."""

    def __init__(self, folder: Path, kubeconfig: Path = Path("/dev/null"), namespace: str = "kube-chores") -> None:
        self.folder, self.namespace = folder, namespace
        homes = {f"HELM_{name}_HOME": str(folder / "helm" / name) for name in ("CACHE", "CONFIG", "DATA")}
        path = f"{PROGRAM.parent}:{programs()}:{os.environ['PATH']}"
        self.env = {**os.environ, **homes, "KUBECONFIG": str(kubeconfig), "HELM_NAMESPACE": namespace, "PATH": path}

    def run(self, *words: str, values: Mapping[str, Any] | None = None) -> "subprocess.CompletedProcess[str]":
        """Run Helm, with values in a file."""
        given: list[str] = []
        if values is not None:
            file = self.folder / "values.yaml"
            file.write_text(yaml.safe_dump(values))
            given = ["--values", str(file)]
        done = subprocess.run(
            [str(PROGRAM), *words, *given], env=self.env, capture_output=True, text=True, timeout=600, check=False
        )
        canary.observed("Helm", done.stdout + done.stderr)
        return done

    def __call__(self, *words: str, values: Mapping[str, Any] | None = None) -> str:
        """Run Helm, which must succeed. Return its stdout."""
        done = self.run(*words, values=values)
        assert done.returncode == 0, f"helm {' '.join(words)}: {done.stderr}"
        return done.stdout

    def shell(self, line: str) -> str:
        """Run a shell command next to the chart, as the docs do; it must succeed. Return its stdout."""
        if not (self.folder / "charts").exists():
            (self.folder / "charts").symlink_to(CHART.parent)
        done = subprocess.run(
            line, shell=True, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=600, check=False
        )
        canary.observed(line, done.stdout + done.stderr)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def from_docs(self, beginning: str, values: Mapping[str, Any] | None = None) -> str:
        """Run the command of the docs that begins with these words, with values in its file. Return its stdout."""
        if values is not None:
            (self.folder / "my-values.yaml").write_text(yaml.safe_dump(values))
        return self.shell(command(beginning))

    def render(self, values: Mapping[str, Any] | None = None, chart: Path = CHART) -> list[Object]:
        """Return the objects of the chart, without its tests."""
        text = self("template", "kube-chores", str(chart), "--skip-tests", values=values)
        return documents(text)
