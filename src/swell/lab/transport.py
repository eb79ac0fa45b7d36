"""What the wire, the runtime and the dispatch cost, against a bare uvloop pair.

Two processes move 200-byte frames over one TCP connection on loopback:

- *swell*: `Link.send` on the data plane (limits, planes and coalescing in place); on the other
  side a `RuntimeWorld` with its splitter and limits, and a node that dispatches on the frame's
  type to a handler, which reads the header and counts.
- *bare*: the same bytes in the same number of writes through two `asyncio.Protocol` objects on
  uvloop; the receiver only counts bytes.

Both senders do one write per loop tick, of 1 or of 20 frames. A trial lasts from the first write
until the receiver's word that all has arrived. The variants take turns in the same two processes,
and a ratio is the median over rounds, since neighbours on the machine disturb single trials. The
write system calls of the sender are counted, to show that both wrote equally often.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from swell.lab.experiment import Bar, Lab, Report
from swell.lab.transport_pair import FRAME_BYTES, Pair, Trial

SUMMARY = "200-byte frames through wire, runtime and dispatch, against a bare uvloop pair"

WRITES = 8_000
WARM_UP_WRITES = 2_000
ROUNDS, ROUNDS_QUICK = 61, 15
BARS = {1: 0.7, 20: 0.3}
"""Frames per write → least share of the bare pair's rate."""


def run(lab: Lab) -> Report:
    rounds = ROUNDS_QUICK if lab.quick else ROUNDS
    kinds = [(1, False), (20, False), (1, True), (20, True)]
    rows = []
    with (
        tempfile.TemporaryDirectory() as directory,
        Pair(Path(directory)) as pair,
        lab.progress("transport", rounds * len(kinds)) as advance,
    ):
        for batch, tls in kinds:
            rows.append(_compare(pair, batch, tls, rounds, advance))
    ratios = {row["frames_per_write"]: row["ratio"] for row in rows if row["tls"] == "no"}
    return Report(
        settings={"frame_bytes": FRAME_BYTES, "rounds": rounds, "writes_per_trial": WRITES},
        rows=rows,
        headline={f"ratio_at_{batch}_per_write": ratio for batch, ratio in ratios.items()},
        bars=[
            Bar.at_least(f"share of a bare uvloop pair, frames per write: {batch}", bar, ratio)
            for batch, bar in BARS.items()
            for ratio in (ratios[batch],)
        ],
        notes=[
            "one connection between two processes, one write per loop tick on both sides; "
            "rates and ratio are medians over the rounds",
            "write_calls: write system calls of the sender per frame batch, swell / bare",
        ],
    )


def _compare(
    pair: Pair, batch: int, tls: bool, rounds: int, advance: Callable[..., None]
) -> dict[str, Any]:
    """Let the two variants take turns, so that both meet the same disturbances."""
    rates: dict[str, list[float]] = {"swell": [], "bare": []}
    calls = dict.fromkeys(rates, 0)
    for number in range(rounds + 1):
        order = ("bare", "swell") if number % 2 else ("swell", "bare")
        for variant in order:
            writes = WRITES if number else WARM_UP_WRITES
            outcome = pair.run(Trial(variant, tls, batch, writes))
            if number:
                rates[variant].append(writes * batch / outcome.seconds)
                calls[variant] += outcome.write_calls
        if number:
            advance()
    ratios = sorted(ours / bare for ours, bare in zip(rates["swell"], rates["bare"], strict=True))
    return {
        "frames_per_write": batch,
        "tls": "yes" if tls else "no",
        "swell_frames_per_s": round(statistics.median(rates["swell"])),
        "bare_frames_per_s": round(statistics.median(rates["bare"])),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_min": round(ratios[0], 3),
        "ratio_max": round(ratios[-1], 3),
        "swell_write_calls": round(calls["swell"] / rounds / WRITES, 3),
        "bare_write_calls": round(calls["bare"] / rounds / WRITES, 3),
    }
