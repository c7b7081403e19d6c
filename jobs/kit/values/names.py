"""The syntax of names. Pure.

https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
"""

from __future__ import annotations

import re

_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def is_name(text: object) -> bool:
    """Whether the API allows this name: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ ."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None
