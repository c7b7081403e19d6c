"""Forward connections, and end each after the server sent a number of bytes, as a proxy with a limit does."""

import asyncio
import contextlib
import sys


async def cut(address: str, port: int, to: int, most: int) -> None:
    """Forward connections until the process ends; `most` is the number of bytes."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(address, to)
        sending = asyncio.create_task(_pump(reader, requests, sys.maxsize))
        await _pump(answers, writer, most)
        sending.cancel()
        requests.close()

    async with await asyncio.start_server(connected, address, port) as server:
        await server.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int) -> None:
    with contextlib.suppress(OSError):
        while most and (data := await reader.read(min(65536, most))):
            most -= len(data)
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(cut(sys.argv[1], *map(int, sys.argv[2:5])))
