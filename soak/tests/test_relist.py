"""A deletion that only a list showed, while the watch did not work."""

import io
import json
from pathlib import Path
from typing import Any

import certifi
import pytest

from soak.history import History, Key

KEY = Key("ConfigMap", "shop", "settings")
FOUND = {"metadata": {"name": "settings", "namespace": "shop", "resourceVersion": "100"}}


def test_a_deletion_of_a_list_can_be_as_old_as_the_last_known_change(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History("https://127.0.0.1:1", "token", Path(certifi.where()), {})
    history.stop()
    history._versions["ConfigMap"], history._changes["ConfigMap"] = {}, []
    for revision, items in ((100, [FOUND]), (150, [])):
        listed = json.dumps({"metadata": {"resourceVersion": str(revision)}, "items": items}).encode()
        monkeypatch.setattr(history, "_get", lambda *_, listed=listed: io.BytesIO(listed))
        connection: Any = None
        history._list("ConfigMap", connection, "/")

    assert [each.revision for each in history.versions(KEY)] == [100, 150]
    assert [each.revision for each in history.during(KEY, 0, 120)] == [100, 150]
    assert [each.revision for each in history.during(KEY, 0, 100)] == [100]
