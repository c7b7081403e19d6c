"""The deliberate bugs of soaks fit the present code."""

import compileall
import filecmp
import shutil
from pathlib import Path

import pytest

from soak import bugs
from tests.control_plane import ROOT

pytestmark = pytest.mark.skipif(not shutil.which("patch"), reason="this machine has no `patch`")


def test_there_are_at_least_ten() -> None:
    assert len(bugs.names()) >= 10


@pytest.mark.parametrize("name", bugs.names())
def test_a_bug_changes_one_file_which_compiles(name: str, tmp_path: Path) -> None:
    assert bugs.about(name).endswith(".")
    jobs = bugs.jobs_with(name, tmp_path / "tree")

    assert len(_different(filecmp.dircmp(ROOT / "jobs", jobs))) == 1
    assert compileall.compile_dir(jobs, quiet=1)


def _different(compared: "filecmp.dircmp[str]") -> list[str]:
    found = list(compared.diff_files)
    return found + [each for part in compared.subdirs.values() for each in _different(part)]


def test_a_patch_that_does_not_fit_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old.patch").write_text(
        "A bug.\n\n--- a/jobs/__main__.py\n+++ b/jobs/__main__.py\n@@ -1 +1 @@\n-no\n+yes\n"
    )
    monkeypatch.setattr(bugs, "FOLDER", tmp_path)

    with pytest.raises(RuntimeError, match=r"old\.patch does not apply"):
        bugs.jobs_with("old", tmp_path / "tree")
