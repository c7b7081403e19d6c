"""Forward connections to an address, from an inherited socket that listens in another network namespace."""

import asyncio
import contextlib
import socket
import sys


async def forward(listening: socket.socket, host: str, port: int) -> None:
    """Forward connections until the process ends."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(host, port)
        except OSError:  # otherwise the client would wait until its timeout
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
