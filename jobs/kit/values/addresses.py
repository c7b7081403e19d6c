"""Which IP addresses no server of another machine has. Pure."""

from __future__ import annotations

import ipaddress


def is_local_address(text: str) -> bool:
    """Return whether this is an IP address of the machine itself, link-local or of no single machine."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    found = getattr(found, "ipv4_mapped", None) or found
    return found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified
