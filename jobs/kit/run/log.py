"""Log messages about the run to stderr, as text or as one JSON object per line. The report goes to stdout."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import datetime, timezone

from jobs.kit.values.text import Lines, brief

log = logging.getLogger("chores")
_LONGEST = 4096  # characters of a line


def _message(record: logging.LogRecord) -> str:
    """Return the message without control characters, also for a program that decodes the JSON and prints it."""
    lines = record.msg.split("\n") if isinstance(record.msg, Lines) else [record.getMessage()]
    if record.exc_info and (error := record.exc_info[1]):
        lines += "".join(traceback.format_tb(error.__traceback__)).splitlines()
        lines.append("".join(traceback.format_exception_only(error)).rstrip())  # one line: it may quote names of files
    return "\n".join(brief(line, _LONGEST) for line in lines)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        prefix = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return prefix + _message(record)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        return json.dumps({"time": time, "level": record.levelname.lower(), "message": _message(record)})


def configure(log_format: str) -> None:
    """Log to stderr in this format: text or json."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if log_format == "json" else _Text())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(logging.WARNING)
    log.setLevel(logging.INFO)
