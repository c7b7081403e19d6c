"""Certificates in PEM: what is copied from a Secret into a ConfigMap, and merged into a bundle. Pure.

Only rules with copyAs or merge import this module: cryptography takes memory, which other runs do not need.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
import warnings
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache

from cryptography import x509

from jobs.kit.values.text import brief

# https://datatracker.ietf.org/doc/html/rfc7468#section-5.1
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_LONGEST = 200  # characters of a subject
_BLOCK = re.compile(rf"\s*{_BEGIN}\s([A-Za-z0-9+/=\s]+){_END}(?=\s|\Z)")


def certificates(text: str) -> str:
    """Return the certificates of a text in PEM, each written again from what was decoded: nothing else is copied.

    Raises:
        ValueError: the text has something else than certificates, or none; the message continues "key NAME ...".
    """
    return "".join(map(_pem, _decoded(text)))


def bundle(texts: Iterable[str]) -> str:
    """Return the certificates of all texts, each once, sorted by the digest of the certificate."""
    found = {encoded for text in texts for encoded in _decoded(text)}
    return "".join(map(_pem, sorted(found, key=lambda each: hashlib.sha256(each).digest())))


def expired(texts: Iterable[str], now: datetime, *, are_public: bool) -> list[str]:
    """Return the subject and the end of each certificate that is no longer valid, each once.

    If they are not public, as in a Secret, the serial number stands for the subject.
    """
    name = _subject if are_public else _serial_number
    with _no_warnings():
        read = (_load(each) for each in sorted({encoded for text in texts for encoded in _decoded(text)}))
        ended = [each for each in read if each.not_valid_after_utc < now]
        return [f"{brief(name(each), _LONGEST)} ({each.not_valid_after_utc:%Y-%m-%d})" for each in ended]


@lru_cache(maxsize=64)  # a run plans several times
def _decoded(text: str) -> Sequence[bytes]:
    """Return the DER of each certificate.

    Raises:
        ValueError: see `certificates`.
    """
    return tuple(_decode(text))


def _decode(text: str) -> Iterator[bytes]:
    end = 0
    while block := _BLOCK.match(text, end):
        end = block.end()
        try:
            encoded = b64decode("".join(block[1].split()), validate=True)
            _load(encoded)
        except (TypeError, ValueError, x509.InvalidVersion):
            raise ValueError("has a block CERTIFICATE that is not a certificate") from None
        yield encoded
    if text[end:].strip():
        raise ValueError("has something other than certificates in PEM, and only certificates are copied")
    if not end:
        raise ValueError("has no certificate")


def _load(encoded: bytes) -> x509.Certificate:
    """Decode a certificate, also its time: cryptography decodes some fields only when they are read."""
    with _no_warnings():
        read = x509.load_der_x509_certificate(encoded)
        assert read.not_valid_after_utc
        return read


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Have cryptography not warn of old certificates, which still are what the source has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _subject(certificate: x509.Certificate) -> str:
    try:
        return certificate.subject.rfc4514_string() or _serial_number(certificate)
    except (TypeError, ValueError):  # a name that is not text, or of a type that its attribute cannot have
        return _serial_number(certificate)


def _serial_number(certificate: x509.Certificate) -> str:
    return f"serial number {certificate.serial_number}"


def _pem(encoded: bytes) -> str:
    lines = textwrap.wrap(b64encode(encoded).decode(), 64)
    return "\n".join([_BEGIN, *lines, _END, ""])
