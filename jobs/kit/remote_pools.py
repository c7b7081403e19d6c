"""Connections to other machines only. Imported with requests, because it imports urllib3."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from jobs.kit.values.addresses import is_local_address


class LocalAddressError(ValueError):
    """A connection is to an address of this machine: it was closed before any byte was sent."""


def _checked(connected: socket.socket) -> socket.socket:
    """Return the socket. A name may have another address here than when it was resolved for an earlier check."""
    if is_local_address(connected.getpeername()[0]):
        connected.close()
        raise LocalAddressError
    return connected


class _Connection(HTTPConnection):
    def _new_conn(self) -> socket.socket:
        return _checked(super()._new_conn())


class _TLSConnection(HTTPSConnection):
    def _new_conn(self) -> socket.socket:
        return _checked(super()._new_conn())


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


POOLS: Mapping[str, type[HTTPConnectionPool]] = {"http": _Pool, "https": _TLSPool}
