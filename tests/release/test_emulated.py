"""The image for arm64 runs: its program, the jobs of the demo, and the tests of the transport."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import jobs
from jobs.commands import demo
from jobs.kit.api.connect import SERVICE_ACCOUNT
from kubesandbox import Sandbox
from tests.buildah import Container
from tests.control_plane import ROOT

pytestmark = pytest.mark.release
# Packages of the image come first.
TESTS = """
import sys
sys.path += ["/tests", "/packages"]
import jobs, pytest
assert jobs.__file__.startswith("/app/"), jobs.__file__
sys.exit(pytest.main(sys.argv[1:]))
"""
OUTSIDE_OF_A_POD = ("--probe=none", "--node-image=kube-chores")  # the defaults of the demo, and its image has no name


def test_it_is_for_arm64_and_prints_its_version(emulated: Container) -> None:
    assert emulated.run("uname", "-m").stdout == "aarch64\n"
    assert emulated.run("id", "-u").stdout == "65532\n"
    assert emulated.run("chores", "--version").stdout == f"chores, version {jobs.__version__}\n"
    assert "sync-copies" in emulated.run("chores", "--help").stdout


def test_the_jobs_of_the_demo_print_the_same_on_both(
    native: Container,
    emulated: Container,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    printed = []
    for container in (native, emulated):
        with monkeypatch.context() as patch, Sandbox(tls=True) as sandbox:
            patch.setattr(demo, "_run", in_a_pod(container, sandbox, tmp_path))
            patch.setenv("CHORES_ECB_URL", "")  # the demo sets it
            patch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
            sandbox.kubeconfig(tmp_path / "kubeconfig", namespace="kube-chores")
            demo._show()
        printed.append(without_times(capsys.readouterr().out))

    assert printed[0].count("$ chores ") > 15
    assert printed[1] == printed[0]


def in_a_pod(container: Container, sandbox: Sandbox, folder: Path) -> Callable[..., None]:
    """Return a function that runs the program in a container as in a pod, with the files of a ServiceAccount."""
    files = {"token": sandbox.admin_token.encode(), "ca.crt": sandbox.authority, "namespace": b"kube-chores"}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    volumes = {folder / name: str(SERVICE_ACCOUNT / name) for name in files}
    host, port = sandbox.url.removeprefix("https://").split(":")
    kubernetes = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    def run(*arguments: str) -> None:
        env = {**kubernetes, "CHORES_ECB_URL": os.environ["CHORES_ECB_URL"]}
        outside = OUTSIDE_OF_A_POD if arguments[0] == "mirror-audit" else ()
        done = container.run("chores", *arguments, *outside, env=env, volumes=volumes)
        assert done.returncode == 0, done.stdout + done.stderr
        click.echo(f"$ chores {' '.join(arguments)}\n{done.stdout}")

    return run


def without_times(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "TIME", text)


def test_the_tests_of_the_transport_pass(emulated: Container, test_packages: Path) -> None:
    volumes = {ROOT / name: f"/tests/{name}" for name in ("cronjobs", "kubesandbox", "tests", "pyproject.toml")}
    pytest_flags = ("-q", "-p", "no:cacheprovider", "-c", "/tests/pyproject.toml", "--rootdir=/tests")
    done = emulated.run(
        "python3", "-c", TESTS, *pytest_flags, "/tests/tests/sandbox/test_transport.py",
        volumes={**volumes, test_packages: "/packages"},
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search(r"\d\d passed", done.stdout)
