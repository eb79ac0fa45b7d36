"""The process around one or several worlds: uvloop, signals, a clean end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import uvloop

from swell.runtime.sockets import raise_descriptor_limit
from swell.runtime.world import RuntimeWorld

GARBAGE_THRESHOLDS = (200_000, 20, 100)
"""Nodes make little cyclic garbage and keep much; by default the collector took a tenth of the
processor of a loaded node."""

SWITCH_S = 0.0002
"""How long a busy loop keeps the disk's thread waiting for its turn: twice per sync. The default of
5 ms made a sync of 0.3 ms take ten."""

Begin = Callable[[], Awaitable[Sequence[RuntimeWorld]]]


def run(begin: Begin) -> int:
    """Run until SIGTERM or SIGINT, or until every world has halted; the exit code.

    `begin` builds and starts the worlds inside the loop and returns them. A signal stops all of
    them cleanly: exit code 0. If they all halted by themselves it is 1.
    """
    raise_descriptor_limit()
    sys.setswitchinterval(SWITCH_S)
    work_in_batches()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(begin))


def work_in_batches() -> None:
    """Ask the scheduler not to break off others, nor this process by them, for every frame that
    arrives: where several processes share a processor, each then takes what has come together."""
    if hasattr(os, "SCHED_BATCH") and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with suppress(OSError):  # a container may not be allowed to
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


async def _run(begin: Begin) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    worlds = await begin()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    signalled = loop.create_task(stopping.wait())
    halted = loop.create_task(_all_halted(worlds))
    await asyncio.wait({signalled, halted}, return_when=asyncio.FIRST_COMPLETED)
    by_themselves = halted.done()
    signalled.cancel()
    halted.cancel()
    await asyncio.gather(*(world.stop() for world in worlds))
    return 1 if by_themselves else 0


async def _all_halted(worlds: Sequence[RuntimeWorld]) -> bool:
    for world in worlds:
        await asyncio.shield(world.halted)
    return True
