"""Messages about the run on stderr, as text or as one JSON object a line. The report itself goes to stdout."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone

log = logging.getLogger("chores")


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        prefix = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return prefix + record.getMessage()


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        return json.dumps({"time": time, "level": record.levelname.lower(), "message": record.getMessage()})


def configure(log_format: str) -> None:
    """Send messages to stderr in this format: text or json."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Text())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(logging.WARNING)
    log.setLevel(logging.INFO)
