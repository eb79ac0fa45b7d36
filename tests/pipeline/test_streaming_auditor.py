"""The auditor of a stream, without Spark: the oracle's verdicts, whatever the batches are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from swell.pipeline.audit_settings import US_PER_S, AuditSettings
from swell.pipeline.streaming_auditor import Auditor
from swell.pipeline.streaming_progress import Progress
from swell.pipeline.streaming_state import Seen, State
from tests.pipeline.audited_logs import FOUND_OF_CLOCKS, logs_of_clocks
from tests.pipeline.generated_logs import BEGIN_US, GeneratedLog, Row, S, digest_of, make
from tests.pipeline.oracle import Finding, Oracle, Rules

JUDGED = {
    "missing",
    "late",
    "duplicate",
    "out-of-order",
    "went-back",
    "wrong-content",
    "unknown",
    "ack-twice",
    "ack-back",
    "ack-lost",
}
HORIZON_S = 30.0
SETTINGS = AuditSettings(horizon_s=HORIZON_S)
DELAY_US = 20 * US_PER_S
BATCHES = (1, 3, 40)


def of_stream(log: GeneratedLog, seed: int, batches: int) -> list[Finding]:
    """What the auditor finds, fed in batches that are in order within the delay."""
    rng = np.random.default_rng(seed)
    rows = [seen(row) for row in log.rows if row["kind"] != "traffic"]
    arrivals = [row.time_us + int(rng.integers(DELAY_US)) for row in rows]
    order = [rows[index] for index in np.argsort(arrivals, kind="stable")]
    state, found, newest_us = State(), [], 0
    for part in np.array_split(np.arange(len(order)), batches):
        batch = [order[index] for index in part]
        auditor = Auditor(SETTINGS, state)
        found += auditor.advance(batch, newest_us - DELAY_US)
        newest_us = max([newest_us, *(row.time_us for row in batch)])
    while (due_us := auditor.next_due_us()) is not None:
        found += auditor.advance([], due_us)
    return [Finding(str(one.verdict), *one[1:6], *one.place, one.excused) for one in found]


def seen(row: Row) -> Seen:
    took_us = row["at"] - (row["sent_at"] or row["at"])
    contradicts = row["kind"] == "apply" and not 0 <= took_us <= SETTINGS.clock_bound_us
    time_us = row["sent_at"] if contradicts else row["at"]
    renamed = {"at_us": row["at"], "sent_us": row["sent_at"], "time_us": time_us}
    return Seen(**{name: {**row, **renamed}[name] for name in Seen.__struct_fields__})


def comparable(found: list[Finding]) -> Counter[Finding]:
    """Without excuses, and all missing versions of a container and configuration together, or all
    that one row brings late: a stream gives them one by one."""
    together: Counter[Finding] = Counter()
    ranges: dict[tuple[object, ...], list[Finding]] = {}
    for one in found:
        plain = one._replace(excused=False)
        if one.verdict in ("missing", "late"):
            place = one[6:9] if one.verdict == "late" else ()
            key = (one.verdict, one.application, one.name, one.who, *place)
            ranges.setdefault(key, []).append(plain)
        elif one.verdict in JUDGED:
            together[plain] += 1
    for several in ranges.values():
        first = min(several, key=lambda one: one.first or 0)
        together[first._replace(last=max(one.last or 0 for one in several))] += 1
    return together


def forgotten_content(log: GeneratedLog) -> set[tuple[object, ...]]:
    """What would be found in apply rows that come a horizon after what they apply was stored: a
    stream may have forgotten its digest."""
    stored: dict[tuple[object, ...], int] = {}
    for row in log.of("store"):
        stored.setdefault((row["application"], row["name"], row["sequence"]), row["at"])
    return {
        ("wrong-content", row["node"], row["start"], row["row"])
        for row in log.of("apply")
        if row["at"]
        > stored.get((row["application"], row["name"], row["sequence"]), row["at"])
        + HORIZON_S * US_PER_S
    }


def without(forgotten: set[tuple[object, ...]], found: list[Finding]) -> list[Finding]:
    return [one for one in found if (one.verdict, *one[6:9]) not in forgotten]


def excused_late(found: list[Finding]) -> set[tuple[object, ...]]:
    """Versions that came late, each with its row."""
    return {
        (version, one[1:4], one[6:9])
        for one in found
        if one.excused and one.verdict == "late" and one.first and one.last
        for version in range(one.first, one.last + 1)
    }


@pytest.mark.beside
def test_a_stream_gives_the_verdicts_of_the_oracle() -> None:
    kinds: Counter[str] = Counter()
    excuses: Counter[int] = Counter()
    for seed in range(200):
        log = make(f"run-{seed}", seed, seed % 6, skews=False)
        end_us = max(row["at"] for row in log.rows) + 1000 * US_PER_S
        log.rows.append({**log.rows[0], "kind": "traffic", "role": "node", "at": end_us})
        oracle = Oracle(log.rows, Rules(horizon_us=HORIZON_S * US_PER_S)).judge()
        forgotten = forgotten_content(log)
        theirs = comparable(without(forgotten, oracle))
        kinds.update(one.verdict for one in theirs)
        for batches in BATCHES:
            stream = of_stream(log, seed, batches)
            ours = comparable(without(forgotten, stream))
            assert ours == theirs, (seed, batches, ours - theirs, theirs - ours)
            # What was lost may be known too late to excuse anything, but never excuses too much.
            assert excused_late(stream) <= excused_late(oracle)
            excuses[batches] += sum(one.excused for one in stream)
    assert set(kinds) == JUDGED, "every kind was there to be found"
    assert set(+excuses) == set(BATCHES)


def updated(kind: str, skew_us: int) -> GeneratedLog:
    """A container whose clock is off takes every version at once."""
    log = GeneratedLog("skewed", 1)
    log.begin("n0", "node", BEGIN_US)
    log.begin("c0", "container", BEGIN_US, skew_us, machine=1)
    about = {"application": "shop", "epoch": 1}
    log.emit("subscribe", "n0", BEGIN_US + S, peer="c0", name="", **about)
    for version in range(1, 21):
        t = BEGIN_US + version * 5 * S
        about |= {"name": "x", "first": version, "sequence": version, "step": version}
        about |= {"digest": digest_of(version)}
        log.emit("store", "n0", t, **about)
        log.emit(kind, "c0", t + 1000, sent_at=t, **about)
    log.emit("traffic", "n0", BEGIN_US + 1000 * S)
    log.number()
    return log


@pytest.mark.parametrize("kind", ["apply", "reject"])
@pytest.mark.parametrize("skew_us", [-18 * S, -S, 18 * S, 7200 * S])
def test_what_satisfies_a_version_is_remembered_until_that_is_judged(
    kind: str, skew_us: int
) -> None:
    """Until then and not longer, whatever the clock of the container says."""
    log = updated(kind, skew_us)
    state, found, kept, judged = State(), [], [], 0
    waiting = [seen(row) for row in log.rows if row["kind"] != "traffic"]
    auditor = Auditor(AuditSettings(horizon_s=HORIZON_S), state)
    for watermark_us in range(BEGIN_US, BEGIN_US + 180 * S, S // 2):
        found += auditor.advance(waiting, watermark_us)
        waiting = []
        judged += auditor.judged
        assert judged + auditor.unjudged() == 20
        progress = state.progress.get("c0", {}).get("shop", {}).get("x", Progress())
        kept.append(len(progress.steps))
    ours = [Finding(str(one.verdict), *one[1:6], *one.place, one.excused) for one in found]
    theirs = Oracle(log.rows, Rules(horizon_us=HORIZON_S * US_PER_S)).judge()
    assert comparable(ours) == comparable(theirs)
    assert judged == 20
    assert max(kept) <= (HORIZON_S + 18) / 5 + 1
    assert kept[-1] <= 1


DAYS = 10
HOUR_US = 3600 * S


def come_and_gone() -> GeneratedLog:
    """Every six hours a container of a new name comes for a minute, then stops or is killed. One of
    them comes back two hours later with less than it had; so does, when the log ends, one that is
    served all the time. The node starts anew every day."""
    log = GeneratedLog("gone", 1)
    for hour in range(24 * DAYS + 1):
        t = BEGIN_US + hour * HOUR_US
        if hour == 0:
            log.begin("kept", "container", t, machine=1)
        if hour % 24 == 0:
            log.begin("n0", "node", t)
            subscribe(log, "kept", t + 1, "rare", 0)
        if hour == 0:
            deliver(log, "kept", t + S, "rare", 1)
            deliver(log, "kept", t + 2 * S, "rare", 2)
        if hour % 6 == 0:
            container = f"host-{hour}"
            log.begin(container, "container", t + 3 * S, machine=1)
            subscribe(log, container, t + 4 * S, "x", 0)
            deliver(log, container, t + 5 * S, "x", 3 + hour // 6)
            log.emit("unsubscribe", "n0", t + 60 * S, peer=container, application="shop")
            if hour % 12 == 0:
                log.emit("stop", container, t + 60 * S)
        if hour == 14:
            come_back(log, "host-12", t, "x", 3)
            log.emit("unsubscribe", "n0", t + 60 * S, peer="host-12", application="shop")
            log.emit("stop", "host-12", t + 60 * S)
    come_back(log, "kept", t + 120 * S, "rare", 1)
    log.emit("traffic", "n0", t + 24 * HOUR_US)
    log.number()
    return log


def subscribe(log: GeneratedLog, container: str, t: int, name: str, step: int) -> None:
    about = {"peer": container, "application": "shop", "name": name, "step": step}
    log.emit("subscribe", "n0", t, epoch=1, **about)


def deliver(log: GeneratedLog, container: str, t: int, name: str, step: int) -> None:
    """One version of each step is stored, and this container has it at once."""
    fields = {"application": "shop", "name": name, "epoch": 1, "sequence": step, "step": step}
    log.emit("store", "n0", t, digest=digest_of(step), **fields)
    log.emit("apply", container, t + 1000, sent_at=t, digest=digest_of(step), **fields)
    log.emit("ack", "n0", t + 2000, peer=container, application="shop", name=name, sequence=step)


def come_back(log: GeneratedLog, container: str, t: int, name: str, step: int) -> None:
    """From a snapshot that is older than what it had."""
    log.begin(container, "container", t)
    log.emit("start", container, t + 1, application="shop")
    subscribe(log, container, t + S, name, step)
    fields = {"application": "shop", "name": name, "epoch": 1, "sequence": step}
    log.emit("apply", container, t + 2 * S, sent_at=t + S, digest=digest_of(step), **fields)


def test_who_is_gone_for_long_is_forgotten_and_nobody_else() -> None:
    log = come_and_gone()
    state, found = State(), []
    auditor = Auditor(AuditSettings(horizon_s=HORIZON_S), state)
    rows = [seen(row) for row in log.rows if row["kind"] != "traffic"]
    for row in rows:
        found += auditor.advance([row], row.time_us - DELAY_US)
    while (due_us := auditor.next_due_us()) is not None:
        found += auditor.advance([], due_us)
    ours = [Finding(str(one.verdict), *one[1:6], *one.place, one.excused) for one in found]
    theirs = comparable(Oracle(log.rows, Rules(horizon_us=HORIZON_S * US_PER_S)).judge())
    assert comparable(ours) == theirs
    assert Counter(one.verdict for one in theirs) == {"went-back": 2, "ack-lost": 1}
    stopped = {f"host-{hour}" for hour in range(24 * (DAYS - 1) + 12, 24 * DAYS + 1, 12)}
    killed = {f"host-{hour}" for hour in range(24 * (DAYS - 7) + 6, 24 * DAYS, 12)}
    expected = {"kept", *stopped, *killed}
    assert {*state.lives} - {"n0"} == {*state.progress} == {*state.clocks} == expected
    for at_primaries in (state.acked, state.held):
        assert set(at_primaries) == {f"n0 {DAYS + 1}"}
        assert {feed for feeds in at_primaries.values() for feed in feeds} == {"host-240 shop"}


def test_a_stream_finds_what_is_missing_whosever_clock_is_off() -> None:
    """In one batch: rows that are no apply rows stand in a stream where such a clock says."""
    for log in logs_of_clocks():
        found = {(one.name, one.who, one.excused) for one in of_stream(log, 0, 1)}
        assert found == FOUND_OF_CLOCKS[log.run], log.run
