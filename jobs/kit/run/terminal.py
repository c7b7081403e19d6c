"""Whether the output may have colors and a progress line, by the environment and the terminal."""

from __future__ import annotations

import os
import sys


def shows_colors() -> bool:
    """Whether colors may be written to a terminal: https://no-color.org ."""
    return not os.environ.get("NO_COLOR") and not _is_dumb()


def shows_progress() -> bool:
    """Whether stderr is a terminal that can overwrite a line."""
    return sys.stderr.isatty() and not _is_dumb()


def _is_dumb() -> bool:
    return os.environ.get("TERM") == "dumb"
