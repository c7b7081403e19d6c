"""Parse quantities of the API, such as 20Gi or 50m. Pure."""

from __future__ import annotations

import re
from decimal import Decimal

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([numkMGTPE]|[KMGTPE]i)?")
_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {suffix: 1024**power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}


def quantity(text: str | int) -> Decimal:
    """Return a quantity as a number, whatever its suffix.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/

    Raises:
        ValueError: the text is not a quantity.
    """
    found = _QUANTITY.fullmatch(str(text))
    if not found:
        raise ValueError(f"{text!r} is not a quantity")
    try:
        number, suffix = Decimal(found[1]), found[2] or ""
        return number * _BINARY[suffix] if suffix in _BINARY else number.scaleb(_SUFFIXES[suffix])
    except ArithmeticError:
        raise ValueError(f"{text!r} is not a quantity") from None
