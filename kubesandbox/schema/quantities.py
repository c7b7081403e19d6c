"""Quantities such as 500m and 1Gi, in the form in which the server serves them.

Rules and wording: k8s.io/apimachinery/pkg/api/resource.
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil, floor

_FORM = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)\Z")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)\Z")
_EXPONENT = re.compile(r"[eE][-+]?[0-9]+\Z")
_WRONG_FORM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_SUFFIX = "unable to parse quantity's suffix"
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_OF_EXPONENT = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


class QuantityError(ValueError):
    """A text that is not a quantity."""


def amount(text: str) -> Fraction:
    """The value of a quantity, rounded to thousandths, away from zero, as in lists of resources.

    Raises:
        QuantityError: it is not a quantity.
    """
    number, suffix = _parts(text)
    exact = Fraction(number) * _factor(suffix) * 1000
    return Fraction(ceil(exact) if exact > 0 else floor(exact), 1000)


def canonical(text: str) -> str:
    """The shortest form without a fraction, in the same notation: 1 for 1000m, 1Gi for 1024Mi.

    Raises:
        QuantityError: it is not a quantity.
    """
    value, suffix = amount(text), _parts(text)[1]
    if suffix in _BINARY[1:] and abs(value) >= 1024 and value.denominator == 1:
        return _binary(int(value))
    mantissa, exponent = _reduced(int(value * 1000), 1000)
    exponent = 3 * exponent - 3
    if not mantissa:
        return "0"
    if _EXPONENT.match(suffix):
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    while exponent > 18:
        mantissa, exponent = mantissa * 1000, exponent - 3
    return f"{mantissa}{_OF_EXPONENT[exponent]}"


def _binary(value: int) -> str:
    mantissa, exponent = _reduced(value, 1024, len(_BINARY) - 1)
    return f"{mantissa}{_BINARY[exponent]}"


def _reduced(mantissa: int, base: int, most: int = 1000) -> tuple[int, int]:
    """The number as a mantissa and a power of the base."""
    exponent = 0
    while mantissa and mantissa % base == 0 and exponent < most:
        mantissa, exponent = mantissa // base, exponent + 1
    return mantissa, exponent


def _parts(text: str) -> tuple[str, str]:
    found = _FORM.match(text)
    if not found or not _NUMBER.match(found[1]):
        raise QuantityError(_WRONG_FORM)
    return found[1], found[2]


def _factor(suffix: str) -> Fraction:
    if suffix in _BINARY[1:]:
        return Fraction(1024 ** _BINARY.index(suffix))
    if _EXPONENT.match(suffix):
        return Fraction(10) ** int(suffix[1:])
    if suffix not in _DECIMAL:
        raise QuantityError(_WRONG_SUFFIX)
    return Fraction(10) ** _DECIMAL[suffix]
