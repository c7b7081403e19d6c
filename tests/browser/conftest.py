"""One Chromium for the session; each page has a context of its own, which is offline."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.core.status.page import page as page_of
from tests.browser import chromium
from tests.status_documents import Document

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Show = Callable[..., "Page"]


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """A headless Chromium."""
    if reason := chromium.missing():
        pytest.skip(reason)
    with chromium.started() as browser:
        yield browser


@pytest.fixture
def show(browser: "Browser", tmp_path: Path) -> Iterator[Show]:
    """Open the page of a document. At the end, the console has no message, and nothing but the page was requested."""
    found: list[str] = []
    contexts = []

    def show(document: Document, **context: Any) -> "Page":
        path = tmp_path / "page.html"
        path.write_text(page_of(document))
        contexts.append(browser.new_context(offline=True, **context))
        opened = contexts[-1].new_page()
        opened.on("console", lambda message: found.append(f"console: {message.text}"))
        opened.on("pageerror", lambda error: found.append(f"error: {error}"))
        opened.on("request", lambda request: found.append(f"request: {request.url}"))
        opened.goto(path.as_uri())
        found.remove(f"request: {path.as_uri()}")
        return opened

    yield show
    for each in contexts:
        each.close()
    assert found == []
