"""Certificates and private keys for tests; a key's text has a canary, so that a copy of it is found."""

from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from tests.canary import canary
from tests.worlds import encoded, secret

NOW = datetime.now(timezone.utc)


@cache
def certificate(name: str, until: datetime = NOW + timedelta(days=365)) -> str:
    """Return a certificate with this common name in PEM; the same arguments give the same one."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(until - timedelta(days=730))
        .not_valid_after(until)
    )
    return built.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def private_key() -> str:
    """Return what looks like a private key in PEM."""
    return f"-----BEGIN PRIVATE KEY-----\n{canary()}\n-----END PRIVATE KEY-----\n"


def issued(namespace: str, name: str = "ca", *, ca: str = "", **data: str) -> dict[str, Any]:
    """Return a Secret as cert-manager writes it: https://cert-manager.io/docs/usage/certificate/#target-secret"""
    pair = {"tls.crt": certificate("leaf"), "tls.key": private_key(), "ca.crt": ca or certificate("root")}
    values = {key: encoded(value) for key, value in {**pair, **data}.items()}
    return secret(namespace, name, type="kubernetes.io/tls", data=values)
