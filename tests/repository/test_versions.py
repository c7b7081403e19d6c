"""The tested Kubernetes versions: their list, and the table that `make test-versions` writes."""

from pathlib import Path

import pytest

from tests import versions
from tests.control_plane import required


def test_the_table_has_each_listed_version_and_no_other() -> None:
    assert list(versions.rows(versions.PAGE.read_text())) == versions.listed(), "run `make test-versions`"


def test_the_version_of_the_other_cluster_tests_is_one_of_them() -> None:
    assert required("kubernetes", "k8s.io/kubernetes") in versions.listed()


def page_with(rows: list[str]) -> str:
    return "\n".join(["before", versions.BEGIN, *versions.HEAD, *rows, "<!-- end -->", "after", ""])


def test_a_version_that_passes_gets_its_row_and_others_keep_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "listed", lambda: ["v1.38.0", "v1.37.2", "v1.36.3"])
    old = ["| 1.37.2 | old |", "| 1.36.3 | kept |", "| 1.35.4 | not listed |"]

    page = versions.with_versions(page_with(old), {"v1.37.2": "| 1.37.2 | new |", "v1.38.0": "| 1.38.0 | first |"})

    assert page == page_with(["| 1.38.0 | first |", "| 1.37.2 | new |", "| 1.36.3 | kept |"])


@pytest.mark.parametrize(("version", "policies"), [("v1.30.14", "yes"), ("v1.29.15", "no")])
def test_a_row_counts_the_tests_that_passed_and_were_skipped(tmp_path: Path, version: str, policies: str) -> None:
    results = tmp_path / "results.xml"
    results.write_text('<testsuites><testsuite errors="0" failures="0" skipped="3" tests="50"/></testsuites>')

    assert versions.row(version, results) == f"| {version[1:]} | {policies} | 47 | 3 |"
