"""Health checks of other programs: does a port accept, does a page answer 2xx."""

from __future__ import annotations

import asyncio

from swell.world import Address

STATUS_LINE_BYTES_MAX = 1024


async def check_health(address: Address, kind: str, timeout_s: float) -> bool:
    """`tcp` connects; `http:/path` answers 2xx. False for everything else, in time."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, limit=STATUS_LINE_BYTES_MAX
            )
            try:
                if kind == "tcp":
                    return True
                return await _answers_2xx(reader, writer, address, kind.removeprefix("http:"))
            finally:
                writer.transport.abort()
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return False


async def _answers_2xx(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: Address, path: str
) -> bool:
    if not path.startswith("/") or any(ord(c) <= 32 or ord(c) > 126 for c in path):
        return False
    request = f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    writer.write(request.encode("ascii"))
    words = (await reader.readuntil(b"\r\n")).split()
    return len(words) >= 2 and words[0].startswith(b"HTTP/1.") and words[1][:1] == b"2"
