"""Two processes that move frames: the sender and the receiver of the `transport` experiment.

The receiver process listens four times: swell and bare, each plain and with TLS. The sender
process does one trial per request. In both variants the sender writes one batch of frames per
loop tick, and rests while its transport holds bytes that the kernel did not take: so every write
is as large as asked for, and there are equally many. The receiver answers once, in the end.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import ssl
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import NamedTuple, cast

import uvloop

from swell.runtime.logs import configure_logging
from swell.runtime.security import TlsMaterial, create_cluster, issue
from swell.runtime.world import RuntimeWorld
from swell.wire.codec import FLAGS_OFFSET, HEADER_BYTES, TYPE_OFFSET, frame
from swell.world import Address, Link, Plane

FRAME_BYTES = 200
HELD_PAUSE_S = 0.001
"""Rest of a sender whose transport holds bytes; the kernel's buffers last longer than that."""
HOST = "127.0.0.1"
TRIAL_S_MAX = 30.0

_DATA = Plane.DATA
_PAYLOAD, _LAST, _COUNTED = 250, 251, 252
_FRAME = frame(_PAYLOAD, b"x" * (FRAME_BYTES - HEADER_BYTES))
_number = Struct(">Q")

Ports = dict[tuple[str, bool], int]
"""(variant, with TLS) → port."""


class Trial(NamedTuple):
    """One transfer: `writes` writes of `batch` frames each; variant is `swell` or `bare`."""

    variant: str
    tls: bool
    batch: int
    writes: int


class Outcome(NamedTuple):
    seconds: float
    write_calls: int
    """Write system calls of the sender process."""


class Pair:
    """The two processes, as a context."""

    def __init__(self, directory: Path) -> None:
        create_cluster(directory / "ca", "transport")
        for node in ("receiver", "sender"):
            issue(directory / "ca", node, directory / node)
        context = multiprocessing.get_context("spawn")
        self._receiver, far_receiver = context.Pipe()
        self._sender, far_sender = context.Pipe()
        self._processes = [
            context.Process(target=_receiver_process, args=(far_receiver, directory), daemon=True),
            context.Process(target=_sender_process, args=(far_sender, directory), daemon=True),
        ]

    def __enter__(self) -> Pair:
        for process in self._processes:
            process.start()
        self._sender.send(self._receiver.recv())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.terminate()
            process.join()

    def run(self, trial: Trial) -> Outcome:
        self._sender.send(trial)
        outcome: Outcome = self._sender.recv()
        return outcome


# The receiver.


class CountingNode:
    """Dispatches on the frame's type, as every node does; the handler reads the header."""

    def __init__(self) -> None:
        self._handlers: list[Callable[[Link, bytes], None]] = [self.on_unknown] * 256
        self._handlers[_PAYLOAD] = self.on_payload
        self._handlers[_LAST] = self.on_last
        self._frames = 0

    def on_link_up(self, link: Link) -> None:
        self._frames = 0

    def on_link_down(self, link: Link, reason: str) -> None: ...

    def on_writable(self, link: Link) -> None: ...

    def stop(self) -> None: ...

    def on_frame(self, link: Link, frame: bytes) -> None:
        self._handlers[frame[TYPE_OFFSET]](link, frame)

    def on_payload(self, link: Link, frame: bytes) -> None:
        if frame[FLAGS_OFFSET]:
            self.on_unknown(link, frame)
        self._frames += 1

    def on_last(self, link: Link, data: bytes) -> None:
        link.send(frame(_COUNTED, _number.pack(self._frames)))

    def on_unknown(self, link: Link, frame: bytes) -> None:
        raise AssertionError("a frame that was never sent")


class BareReceiver(asyncio.Protocol):
    """Counts bytes; the first eight say how many will come."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._expected = self._counted = 0

    def data_received(self, data: bytes) -> None:
        self._counted += len(data)
        if self._counted >= self._expected:
            self._on_threshold(data)

    def _on_threshold(self, data: bytes) -> None:
        if not self._expected:
            self._expected = _number.unpack_from(data)[0] + _number.size
        if self._counted == self._expected:
            self._transport.write(_number.pack(self._counted - _number.size))


def _receiver_process(parent: Connection, directory: Path) -> None:
    configure_logging("warning")

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        ports: Ports = {}
        for tls in (False, True):
            material = TlsMaterial(directory / "receiver") if tls else None
            world = RuntimeWorld("receiver", directory / f"data-{tls}", material)
            ports["swell", tls] = world.listen(HOST, 0).port
            world.start(CountingNode())
            context = material.server_context() if material else None
            server = await loop.create_server(BareReceiver, HOST, 0, ssl=context)
            ports["bare", tls] = server.sockets[0].getsockname()[1]
        parent.send(ports)
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


# The sender.


class Sender:
    """One write per loop tick, as long as the kernel takes them; the same for both variants."""

    def __init__(self, trial: Trial, loop: asyncio.AbstractEventLoop) -> None:
        self.up: asyncio.Future[None] = loop.create_future()
        self.counted: asyncio.Future[int] = loop.create_future()
        self.expected = trial.writes * trial.batch
        """What the receiver must have counted in the end."""
        self._loop = loop
        self._left = trial.writes

    def pump(self) -> None:
        if not self.held_bytes():
            self.write()
            self._left -= 1
            if self._left:
                self._loop.call_soon(self.pump)
            else:
                self._loop.call_soon(self.finish)
        else:
            self._loop.call_later(HELD_PAUSE_S, self.pump)

    def held_bytes(self) -> int:
        raise NotImplementedError

    def write(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """After the last write: nothing to say, unless the receiver cannot know."""


class SwellSender(Sender):
    """A node that sends its batches on one link."""

    def __init__(self, trial: Trial, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(trial, loop)
        self._batch = range(trial.batch)
        self._link: Link

    def on_link_up(self, link: Link) -> None:
        self._link = link
        self.up.set_result(None)

    def on_link_down(self, link: Link, reason: str) -> None:
        raise AssertionError(reason)

    def on_writable(self, link: Link) -> None: ...

    def stop(self) -> None: ...

    def on_frame(self, link: Link, frame: bytes) -> None:
        self.counted.set_result(_number.unpack_from(frame, HEADER_BYTES)[0])

    def held_bytes(self) -> int:
        return self._link.queued_bytes

    def write(self) -> None:
        link = self._link
        for _ in self._batch:
            link.send(_FRAME, _DATA)

    def finish(self) -> None:
        self._link.send(frame(_LAST, b""), _DATA)


class BareSender(Sender, asyncio.Protocol):
    """The same on a bare transport."""

    def __init__(self, trial: Trial, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(trial, loop)
        self._chunk = _FRAME * trial.batch
        self.expected = len(self._chunk) * trial.writes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(_number.pack(self.expected))
        self.up.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.counted.set_result(_number.unpack(data)[0])

    def held_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def write(self) -> None:
        self._transport.write(self._chunk)


def _sender_process(parent: Connection, directory: Path) -> None:
    configure_logging("warning")
    ports: Ports = parent.recv()
    material = TlsMaterial(directory / "sender")
    contexts = {False: None, True: material.client_context()}

    async def measure(sender: SwellSender | BareSender) -> Outcome:
        await sender.up
        calls, began_s = _write_calls(), time.perf_counter()
        sender.pump()
        counted = await sender.counted
        seconds = time.perf_counter() - began_s
        assert counted == sender.expected, f"{counted} arrived, {sender.expected} were sent"
        return Outcome(seconds, _write_calls() - calls)

    async def swell(trial: Trial) -> Outcome:
        data_dir = directory / f"data-sender-{trial.tls}"
        world = RuntimeWorld("sender", data_dir, material if trial.tls else None)
        sender = SwellSender(trial, world.loop)
        world.start(sender)
        link = world.dial(Address(HOST, ports["swell", trial.tls]))
        outcome = await measure(sender)
        link.close()
        await world.stop()
        return outcome

    async def bare(trial: Trial) -> Outcome:
        loop = asyncio.get_running_loop()
        context: ssl.SSLContext | None = contexts[trial.tls]
        transport, sender = await loop.create_connection(
            lambda: BareSender(trial, loop), HOST, ports["bare", trial.tls], ssl=context
        )
        outcome = await measure(sender)
        transport.abort()
        return outcome

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        while True:
            trial: Trial = parent.recv()
            kind = swell if trial.variant == "swell" else bare
            parent.send(runner.run(asyncio.wait_for(kind(trial), TRIAL_S_MAX)))


def _write_calls() -> int:
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("syscw:"):
            return int(line.split()[1])
    raise AssertionError("/proc/self/io has no syscw")
