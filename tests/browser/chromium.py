"""A headless Chromium for tests and for the screenshots of the docs."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PROGRAMS = ("chromium", "google-chrome")  # Ubuntu has no package of Chromium
# Chromium sends requests of its own, and a machine without a display has no graphics card.
FLAGS = ["gpu", "quic", "background-networking", "component-update", "sync"]


def program() -> str | None:
    """Return the path of the browser, or None."""
    return next((path for each in PROGRAMS if (path := shutil.which(each))), None)


def is_installed() -> bool:
    """Whether the machine has the browser."""
    return program() is not None


def missing() -> str:
    """Return what is missing, or nothing."""
    names = [] if is_installed() else [PROGRAMS[0]]
    names += [each for each in ("playwright", "axe_playwright_python") if find_spec(each) is None]
    return f"not installed: {', '.join(names)}; run `make browser-tools`" if names else ""


@contextmanager
def started() -> Iterator["Browser"]:
    """Start the browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=[f"--disable-{each}" for each in FLAGS])
        yield browser
        browser.close()
