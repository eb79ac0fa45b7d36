"""One value pushed to 500 subscribers: ours beside etcd, NATS and Redis, in one run on one machine.

The value is a JSON object of 10 KB of which each update changes one key. Closed loop: 32 updates
are under way, and one has ended when all subscribers have it. Two parts:

- *each system's own way*: the peers carry the whole value in every update, as their users do.
- *patches by hand*: the peers carry only a patch, which every subscriber applies to its copy. That
  is what a careful user could build on top of them; ours has only its one way and is left out.

A delivery counts when a subscriber has that version; a version that it never got does not count.
Systems take turns, one running at a time, and figures are medians over the rounds, since neighbours
on the machine disturb single ones. Bars are held against the best peer, for each figure anew. With
`--events` a third part says what it costs to write them (`swell.lab.fanout_recording`).
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from swell.lab import fanout_peers, fanout_recording, socket_bytes
from swell.lab.experiment import Bar, Lab, Report
from swell.lab.fanout_recording import PLAIN, RECORDED
from swell.lab.fanout_swell import Swell
from swell.lab.fanout_trial import SUBSCRIBERS, WINDOW, Outcome, System, Trial
from swell.lab.fanout_value import VALUE_BYTES

SUMMARY = "a 10 KB value pushed to 500 subscribers, beside etcd, NATS and Redis: rates, cost, bytes"
PEERS = tuple(fanout_peers.PEERS)

OURS: System = Swell()
OUR_NAME = OURS.name

OWN_WAY, BY_HAND = "each system's own way", "patches by hand"
TOGETHER = "with and without events, at the same time"
RATE_RATIO_MIN = 3.0
CPU_RATIO_MAX = 1 / 10
BYTES_RATIO_MAX = 1 / 500

Row = dict[str, Any]


class Plan(NamedTuple):
    """How thoroughly to measure."""

    rounds: int
    warm_up_s: float
    seconds: float
    pairs: int
    """Of trials with and without events, where that is asked for."""
    pair_s: float


FULL = Plan(rounds=3, warm_up_s=1.0, seconds=10.0, pairs=20, pair_s=10.0)
QUICK = Plan(rounds=1, warm_up_s=0.5, seconds=3.0, pairs=2, pair_s=3.0)


def run(lab: Lab) -> Report:
    plan = QUICK if lab.quick else FULL
    asked: list[System] = [OURS]
    asked += [fanout_peers.PEERS[name] for name in PEERS if name in lab.peers]
    absences = [system.absence() for system in asked if system.absence()]
    systems = [system for system in asked if not system.absence()]
    versions: dict[str, str] = {}
    rows = _measure(systems, plan, lab, versions)
    found_bars = bars(rows, lab.peers)
    if lab.events:
        pairs = _measure_events(plan, lab, str(lab.events.absolute()))
        for name, outcomes in zip((PLAIN, RECORDED), zip(*pairs, strict=True), strict=True):
            rows.append(row_of(TOGETHER, name, outcomes))
        found_bars.append(fanout_recording.bar(pairs))
        each = ", ".join(f"{one:.2f}" for one in sorted(fanout_recording.ratios(pairs)))
        absences.append(
            f"{RECORDED}: nodes and containers write all API events; the trials: {each}"
        )
    if not socket_bytes.is_installed():
        absences.append("bytes were not counted: `apt-get install iproute2` for its command ss")
    return Report(
        settings={
            "value_bytes": VALUE_BYTES,
            "subscribers": SUBSCRIBERS,
            "window": WINDOW,
            "rounds": plan.rounds,
            "seconds_per_round": plan.seconds,
            "versions": versions,
        },
        rows=rows,
        headline=headline(rows),
        bars=found_bars,
        columns=COLUMNS,
        notes=[*absences, *NOTES],
    )


def _measure(
    systems: Sequence[System], plan: Plan, lab: Lab, versions: dict[str, str]
) -> list[Row]:
    found: dict[tuple[str, str], list[Outcome]] = {}
    with lab.progress("fanout", plan.rounds * len(systems)) as advance:
        for number in range(plan.rounds):
            for system in systems if number % 2 == 0 else reversed(systems):
                with (
                    tempfile.TemporaryDirectory(prefix=f"swell-fanout-{system.name}-") as directory,
                    system.running(Path(directory)) as running,
                ):
                    versions[system.name] = running.version
                    for part in (OWN_WAY, BY_HAND) if system.by_hand else (OWN_WAY,):
                        trial = Trial(part == BY_HAND, plan.warm_up_s, plan.seconds)
                        found.setdefault((part, system.name), []).append(running.trial(trial))
                advance()
    return [
        row_of(part, system.name, found[part, system.name])
        for part in (OWN_WAY, BY_HAND)
        for system in systems
        if (part, system.name) in found
    ]


def _measure_events(plan: Plan, lab: Lab, events: str) -> list[fanout_recording.Pair]:
    trial = Trial(False, plan.warm_up_s, plan.pair_s)
    with lab.progress("fanout with events", plan.pairs) as advance:
        return fanout_recording.measure(events, trial, plan.pairs, advance)


def row_of(part: str, name: str, outcomes: Sequence[Outcome]) -> Row:
    """Medians over the rounds; of what should not happen, the sum."""

    def median(figure: Callable[[Outcome], float]) -> float:
        return statistics.median(map(figure, outcomes))

    row: Row = {
        "part": part,
        "system": name,
        "deliveries_per_s": round(median(lambda one: one.deliveries / one.seconds)),
        "updates_per_s": round(median(lambda one: one.deliveries / one.seconds / SUBSCRIBERS), 1),
        "p50_ms": round(median(lambda one: one.p50_ms), 2),
        "p99_ms": round(median(lambda one: one.p99_ms), 2),
        "server_cpu_us": _per(outcomes, lambda one: one.servers_cpu_s * 1e6, _deliveries),
        "client_cpu_us": _per(outcomes, lambda one: one.clients_cpu_s * 1e6, _deliveries),
        "servers_cpu": round(median(lambda one: one.servers_cpu_s / one.seconds), 2),
        "clients_cpu": round(median(lambda one: one.clients_cpu_s / one.seconds), 2),
        "others_cpu": round(median(lambda one: one.others_cpu_s / one.seconds), 2),
        "server_bytes": None,
        "load_processes": outcomes[0].load_processes,
        "skipped": sum(one.skipped for one in outcomes),
        "missing": sum(one.missing for one in outcomes),
    }
    if all(one.server_bytes is not None for one in outcomes):
        row["server_bytes"] = _per(
            outcomes, lambda one: one.server_bytes or 0, lambda one: one.bytes_deliveries
        )
    return row


def _deliveries(outcome: Outcome) -> int:
    return outcome.deliveries


def _per(
    outcomes: Sequence[Outcome],
    what: Callable[[Outcome], float],
    deliveries: Callable[[Outcome], int],
) -> float:
    """Median over the rounds of something per delivery; infinite where nothing was delivered."""
    return round(
        statistics.median(
            what(one) / deliveries(one) if deliveries(one) else float("inf") for one in outcomes
        ),
        4,
    )


def headline(rows: Sequence[Row]) -> dict[str, int | float]:
    return {
        f"deliveries per second, {row['system']}, {row['part']}": row["deliveries_per_s"]
        for row in rows
    }


def bars(rows: Sequence[Row], peers: Sequence[str]) -> list[Bar]:
    """What must be shown; against peers that are absent, nothing was."""
    if not peers:
        return []
    own_way = {row["system"]: row for row in rows if row["part"] == OWN_WAY}
    ours = own_way.pop(OUR_NAME, None)
    found = [
        _bar(ours, own_way, "deliveries per second", "deliveries_per_s", RATE_RATIO_MIN),
        _bar(ours, own_way, "server processor time per delivery", "server_cpu_us", CPU_RATIO_MAX),
        _bar(ours, own_way, "server bytes per delivery", "server_bytes", BYTES_RATIO_MAX),
    ]
    if ours is not None:
        lost = ours["missing"] + ours["skipped"]
        found.append(Bar.at_most("deliveries of ours that were missing or skipped", 0, lost))
    return found


def _bar(ours: Row | None, theirs: Mapping[str, Row], what: str, figure: str, limit: float) -> Bar:
    known = {name: row[figure] for name, row in theirs.items() if row[figure] is not None}
    if ours is None or ours[figure] is None or not known:
        return Bar.not_measured(f"{what}, ours against the best peer's", limit)
    most = figure == "deliveries_per_s"
    best = (max if most else min)(known, key=lambda name: known[name])
    sentence = f"{what}, ours against the best peer's ({best})"
    ratio = ours[figure] / known[best]
    if most:
        return Bar.at_least(sentence, limit, round(ratio, 3))
    return Bar.at_most(sentence, limit, round(ratio, 6))


COLUMNS = (
    "system",
    "deliveries_per_s",
    "updates_per_s",
    "p50_ms",
    "p99_ms",
    "server_cpu_us",
    "server_bytes",
    "client_cpu_us",
    "servers_cpu",
    "clients_cpu",
    "others_cpu",
    "load_processes",
    "skipped",
    "missing",
)

NOTES = (
    "closed loop: 32 updates under way; one has ended when all 500 subscribers have it, so latency "
    "(from the call that publishes until a subscriber has it) is mostly the queue of the 32",
    "server_cpu_us, client_cpu_us, server_bytes: per delivery; all server processes together, and "
    "the processes with the subscribers and the publisher; servers_cpu, clients_cpu, others_cpu: "
    "cores, the last of everything else on the machine: if it is not small, run this again",
    "server_bytes: payload of all TCP connections of the servers as the kernel counts it (ss), "
    "replication between servers included",
    "swell: three nodes, durable and replicated; containers that relay for each other, verify the "
    "signature of every burst, apply each version and give receipts with proofs, in two processes; "
    "a delivery counts when that receipt has reached the primary",
    "redis, nats: one server, nothing kept and nothing replicated; etcd: three members, durable, "
    "subscribers spread over them; a subscriber is a connection of its own everywhere",
    "subscribers of the peers are bare sockets in one or two Python processes, whichever gave that "
    "peer the higher rate; they decode nothing, and with patches by hand apply them to their copy",
)
