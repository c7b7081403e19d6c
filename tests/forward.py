"""Forwards connections from a socket that it is handed, which listens in another network namespace, to an address."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys


async def forward(listening: socket.socket, host: str, port: int) -> None:
    """Serve for ever."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(host, port)
        except OSError:  # or the client would wait for its time limit
            writer.close()
            return
        await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))

    async with await asyncio.start_server(connected, sock=listening) as server:
        await server.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(forward(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], int(sys.argv[3])))
