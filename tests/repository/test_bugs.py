"""The deliberate bugs fit the present code, and their tests exist. `make bugs` tries them."""

import shutil

import pytest

from tests.bugs import apply_patch, bugs
from tests.manifests import ROOT


@pytest.mark.skipif(not shutil.which("patch"), reason="this machine has no `patch`")
def test_the_bugs_apply() -> None:
    assert len(bugs()) >= 80
    for each in bugs():
        apply_patch(each.path, ROOT, "--dry-run")


def test_the_tests_of_bugs_exist() -> None:
    for each in bugs():
        path, _, function = each.test.partition("[")[0].partition("::")
        assert f"\ndef {function}(" in (ROOT / path).read_text(), each.name
