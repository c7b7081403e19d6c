"""The checks of the suite itself fail if they should."""

import base64
import hashlib
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests import canary
from tests.manifests import ROOT


@pytest.mark.parametrize("before", ["", "a", "ab", "abc", "user:pass="])
@pytest.mark.parametrize("after", ["", "z", "zy"])
def test_a_canary_is_found_in_base64_however_it_is_aligned(before: str, after: str) -> None:
    value = before + canary.canary() + after
    assert canary.leaks(base64.b64encode(value.encode()).decode()) == ["base64"]


def test_a_canary_is_found_plain_and_as_its_plain_hash() -> None:
    value = canary.canary(" with more")
    assert canary.leaks(f"could not copy {value}") == ["plain"]
    assert canary.leaks(hashlib.sha256(value.encode()).hexdigest().upper()) == ["sha256"]


def test_a_text_without_canaries_is_clean() -> None:
    canary.canary()
    other = "canary-0000000000000000-1"
    assert canary.leaks(other + base64.b64encode(other.encode()).decode() + hashlib.sha256(b"x").hexdigest()) == []


LEAKING = {
    "stdout": "print(canary())",
    "stderr": "import sys; print(canary(), file=sys.stderr)",
    "a log": "import logging; logging.warning(canary())",
    "taken output": "print(canary()); capsys.readouterr()",
    "base64": "import base64; print(base64.b64encode(canary().encode()).decode())",
    "CliRunner": "import click.testing as t, click; t.CliRunner().invoke(click.command()(lambda: print(canary())))",
    "a process": "from tests.canary import observed; observed('its stdout', canary())",
}


def test_a_test_that_shows_a_canary_fails_by_name_and_one_that_keeps_it_passes(tmp_path: Path) -> None:
    tests = [f"def test_leaks_in_{number}(capsys): {code}" for number, code in enumerate(LEAKING.values())]
    keeps = "def test_keeps(): canary(); print('fine')"
    done = _suite(tmp_path, "\n".join(["from tests.canary import canary", *tests, keeps]))

    for number, where in enumerate(LEAKING):
        assert f"test_leaks_in_{number}: " in done.stdout, where
    assert done.stdout.count("shows a Secret value") >= len(LEAKING)
    assert re.search(rf"^\d+ passed, {len(LEAKING)} errors|^{len(LEAKING)} failed, 1 passed", done.stdout, re.M)


SKIPPED = """
    import pytest
    from tests.canary import canary
    @pytest.mark.cluster
    def test_skipped(): pytest.skip("no etcd here")
    def test_keeps(): canary(); print("fine")
"""


def test_a_skipped_cluster_test_fails_in_ci_only(tmp_path: Path) -> None:
    assert _suite(tmp_path, SKIPPED).returncode == 0
    done = _suite(tmp_path, SKIPPED, CI="true")
    assert done.returncode == 1
    assert "test_skipped was skipped in CI: no etcd here" in done.stdout


def _suite(folder: Path, test: str, CI: str = "") -> subprocess.CompletedProcess[str]:  # noqa: N803
    """Run pytest with the conftest of this suite on one file, and capture its output."""
    (folder / "test_inner.py").write_text(textwrap.dedent(test))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml")]
    command += ["-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    env = {"PATH": "", "CI": CI}
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
