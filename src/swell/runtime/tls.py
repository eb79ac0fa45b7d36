"""TLS between a connection and its link: what the link writes is sealed, what comes is opened.

To the loop it is the protocol of a TCP connection, to the link its transport. It exists for the
sake of idle links: the loop's own TLS keeps buffers of a quarter of a megabyte and the parsed
certificate for each, here nothing is kept but OpenSSL's state. Bytes pass through in pieces of one
record, so that what lies between OpenSSL and the socket never grows beyond that.

The link sees the connection when the handshake is over, and never if it fails. `write_eof` says
that nothing more follows (close_notify) and leaves the other direction open, as TCP does; whoever
hears it answers in kind and closes.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from swell.runtime.link import RuntimeLink

RECORD_BYTES = 16 * 1024
"""Plain bytes of one TLS record, at most."""

ALERT_S = 1.0
"""After a failure the peer has that long to read why."""


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """One connection."""

    __slots__ = (
        "_deadline", "_finished", "_handshake_s", "_incoming", "_link", "_opened", "_outgoing",
        "_tls", "_transport",
    )  # fmt: skip

    def __init__(
        self, link: RuntimeLink, context: ssl.SSLContext, server_side: bool, handshake_s: float
    ) -> None:
        self._link = link
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side)
        self._handshake_s = handshake_s
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] | None = asyncio.get_running_loop().create_future()
        """Until the handshake is over, one way or the other."""
        self._deadline: asyncio.TimerHandle | None = None
        self._finished = False
        """Nothing can be written any more."""

    async def wait_open(self) -> None:
        """Until the handshake is over; `OSError` if it failed. Gives up with its caller."""
        try:
            if self._opened is not None:
                await self._opened
        except asyncio.CancelledError:
            self.abort()
            raise

    # Shaking hands.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._handshake_s, self._expire_handshake)
        self._shake_hands()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
        except ssl.SSLError as error:
            self._end_handshake(error)
            self._fail()
        else:
            self._flush()
            self._end_handshake(None)
            self._link.connection_made(self)

    def _end_handshake(self, error: Exception | None) -> None:
        opened, self._opened = self._opened, None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if opened is not None and not opened.done():
            if error is None:
                opened.set_result(None)
            else:
                opened.set_exception(error)

    def _expire_handshake(self) -> None:
        self._end_handshake(ConnectionAbortedError("no TLS handshake in time"))
        self._finished = True
        self.abort()

    # The loop's side.

    def data_received(self, data: bytes) -> None:
        if len(data) <= RECORD_BYTES:
            self._receive(data)
            return
        view = memoryview(data)
        for at in range(0, len(data), RECORD_BYTES):
            self._receive(view[at : at + RECORD_BYTES])

    def _receive(self, data: bytes | memoryview) -> None:
        incoming = self._incoming
        incoming.write(data)
        if self._opened is not None:
            self._shake_hands()
            if self._opened is not None or self._finished:
                return
        read, received = self._tls.read, self._link.data_received
        try:
            while incoming.pending:
                plain = read(RECORD_BYTES)
                if not plain:
                    raise ssl.SSLZeroReturnError
                received(plain)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._on_close_notify()
        except ssl.SSLError as error:
            self._link.connection_lost(error)
            self._fail()
        if self._outgoing.pending:
            self._flush()

    def _on_close_notify(self) -> None:
        """The peer has finished."""
        self.write_eof()
        self.close()

    def _fail(self) -> None:
        """End the connection behind the alert that tells the peer why."""
        self._finished = True
        self._flush()
        self.close()
        asyncio.get_running_loop().call_later(ALERT_S, self.abort)

    def eof_received(self) -> None:
        """Without a word of TLS; the transport closes itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._opened is not None:
            self._end_handshake(exc or ConnectionResetError("closed during the TLS handshake"))
        elif self._link.attached:
            self._link.connection_lost(exc)

    def pause_writing(self) -> None:
        self._link.pause_writing()

    def resume_writing(self) -> None:
        self._link.resume_writing()

    # The link's side.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._finished or self._transport is None:
            return
        seal = self._tls.write
        if len(data) <= RECORD_BYTES:
            seal(data)
            self._flush()
            return
        view = memoryview(data)
        at = 0
        sealed = []
        while at < len(data):
            at += seal(view[at : at + RECORD_BYTES])
            sealed.append(self._outgoing.read())
        self._transport.write(b"".join(sealed))

    def _flush(self) -> None:
        sealed = self._outgoing.read()
        if sealed and self._transport is not None:
            self._transport.write(sealed)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._finished:
            self._finished = True
            with suppress(ssl.SSLError):  # it asks for the peer's answer, which comes later
                self._tls.unwrap()
            self._flush()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert self._transport is not None
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peercert":
            return self._tls.getpeercert()
        assert self._transport is not None
        return self._transport.get_extra_info(name, default)
