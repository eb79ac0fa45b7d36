"""The auditor of a stream, without Spark: the oracle's verdicts, whatever the batches are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from swell.pipeline.audit_settings import US_PER_S, AuditSettings
from swell.pipeline.streaming_auditor import Auditor
from swell.pipeline.streaming_state import Seen, State
from tests.pipeline.audited_logs import FOUND_OF_CLOCKS, logs_of_clocks
from tests.pipeline.generated_logs import GeneratedLog, Row, make
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


def test_a_stream_finds_what_is_missing_whosever_clock_is_off() -> None:
    """In one batch: rows that are no apply rows stand in a stream where such a clock says."""
    for log in logs_of_clocks():
        found = {(one.name, one.who, one.excused) for one in of_stream(log, 0, 1)}
        assert found == FOUND_OF_CLOCKS[log.run], log.run
