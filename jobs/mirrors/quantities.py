"""Quantities of the API, such as 20Gi or 50m, as the numbers that they stand for. Pure."""

from __future__ import annotations

import re
from decimal import Decimal

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?")
_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}


def quantity(text: str | int) -> Decimal:
    """Return the number that a quantity stands for, however it is written.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/

    Raises:
        ValueError: it is none.
    """
    found = _QUANTITY.fullmatch(str(text))
    if not found:
        raise ValueError(f"{text!r} is no quantity")
    try:
        number, suffix = Decimal(found[1]), found[2] or ""
        return number * _BINARY[suffix] if suffix in _BINARY else number.scaleb(_SUFFIXES[suffix])
    except ArithmeticError:
        raise ValueError(f"{text!r} is no quantity") from None
