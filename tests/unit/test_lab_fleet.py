"""Fleets and what is measured with them: messages, what counts as delivered, what is published."""

from __future__ import annotations

import json
import random
from multiprocessing import Pipe
from typing import Any

import numpy as np
import pytest

from swell.errors import SwellError
from swell.lab import fanout_swell, ripple, ripple_run
from swell.lab.fanout_publisher import Published
from swell.lab.fanout_reading import Reading
from swell.lab.fanout_trial import Trial
from swell.lab.fleet_messages import (
    Collect,
    Collected,
    Failed,
    Following,
    Hosted,
    Start,
    Started,
    receive_answer,
    receive_command,
    send,
)
from swell.lab.ripple_publisher import Application, Log
from swell.lab.ripple_publisher import Published as Administered
from swell.lab.ripple_run import Measured, RippleSettings, Server
from swell.settings import ConfigSettings
from swell.world import Address

MS = 1_000_000


def rows(*runs: tuple[int, int, int]) -> bytes:
    return np.array(runs, dtype=np.int64).tobytes()


def collected(runs: dict[str, bytes], *following: Following, disorder: int = 0) -> Collected:
    return Collected(runs, following, disorder, {}, 0.5, 64.0)


# Messages.


def test_what_is_said_on_the_pipe_is_heard() -> None:
    near, far = Pipe()
    containers = (
        Hosted("c1", "shop", "s", ("shop", "other")),
        Hosted("c2", "shop", "s", (), False),
    )
    settings = ConfigSettings(relaying=False)
    start = Start("lab", (Address("127.0.0.1", 1),), containers, settings, heard=True)
    for command in (start, Collect(True)):
        send(near, command)
        assert receive_command(far) == command
    answers = (Started(1.5), collected({"shop": rows((0, 1, 2))}, Following("c1", "shop", 1, b"d")))
    for answer in answers:
        send(far, answer)
        assert receive_answer(near, 1.0) == answer


def test_a_complaint_and_a_silence_are_errors() -> None:
    near, far = Pipe()
    with pytest.raises(SwellError, match="has not answered within 0 s"):
        receive_answer(near, 0.0)
    send(far, Failed("no such application"))
    with pytest.raises(SwellError, match="no such application"):
        receive_answer(near, 1.0)
    near.close()
    assert receive_command(far) is None
    near, far = Pipe()
    far.close()
    with pytest.raises(SwellError, match="ended early"):
        receive_answer(near, 1.0)


# Fan-out.


def test_only_what_everybody_gave_receipts_for_is_a_delivery() -> None:
    # Two containers; the first value was step 3; two updates have ended, a third has not.
    ours = collected({"a": rows((3, 4, 20 * MS), (4, 6, 30 * MS))}, Following("c1", "a", 6, b"x"))
    theirs = collected({"a": rows((3, 5, 40 * MS))}, Following("c2", "a", 5, b"y"))
    published = Published((10 * MS, 11 * MS, 12 * MS), 2)
    begin, end = Reading(0, 1.0, 2.0, 8.0), Reading(1000 * MS, 1.5, 3.0, 11.0)
    trial = Trial(False, 0.0, 1.0, subscribers=2)
    found = fanout_swell.outcome_of(trial, 3, published, [ours, theirs], begin, end, 100)
    assert (found.deliveries, found.bytes_deliveries, found.missing) == (4, 4, 2)
    assert (found.seconds, found.servers_cpu_s, found.clients_cpu_s) == (1.0, 0.5, 1.0)
    assert (found.others_cpu_s, found.load_processes) == (1.5, 2)
    assert found.p50_ms == pytest.approx((19 + 29) / 2)


def test_a_container_out_of_order_or_with_other_documents_ends_a_trial() -> None:
    same = Following("c1", "a", 4, b"x")
    fanout_swell.check([collected({}, same), collected({}, Following("c2", "a", 3, b"y"))])
    with pytest.raises(SwellError, match="c2 has other documents"):
        fanout_swell.check([collected({}, same), collected({}, Following("c2", "a", 4, b"y"))])
    with pytest.raises(SwellError, match="1 updates out of order"):
        fanout_swell.check([collected({}, same, disorder=1)])


# Ripple's load.


@pytest.mark.parametrize("payload_bytes", [1_000, 10_000, 100_000])
def test_a_whole_value_has_nothing_of_the_one_before(payload_bytes: int) -> None:
    application = Application("a", payload_bytes, random.Random(1))
    first, second = application.whole(), application.whole()
    assert abs(len(first.data) - payload_bytes) < 0.1 * payload_bytes
    keys = [set(json.loads(one.data)) - {""} for one in (first, second)]
    assert not keys[0] & keys[1]
    change = application.change()
    assert change.path in keys[1]
    assert json.loads(second.data)[change.path] != change.text


def test_containers_are_dealt_out_to_applications() -> None:
    containers = ripple_run.containers_of(RippleSettings(containers=50, applications=20))
    assert len({one.name for one in containers}) == 50
    assert {one.follows for one in containers} == {(one.owner,) for one in containers}
    sizes = [sum(one.owner == name for one in containers) for name in {c.owner for c in containers}]
    assert sorted(sizes) == [2] * 10 + [3] * 10


def administered(**logs: tuple[list[int], list[int]]) -> Administered:
    found = {
        name: Log(
            np.array(due_ns, dtype=np.int64).tobytes(), np.array(steps, dtype=np.int64).tobytes()
        )
        for name, (due_ns, steps) in logs.items()
    }
    return Administered(found, {}, ())


def outcome(published: Administered, *processes: Collected, begin_ns: int = 0) -> Any:
    measured = Measured(
        Reading(begin_ns, 0.0, 0.0, 0.0),
        Reading(begin_ns + 2_000 * MS, 1.0, 0.5, 2.0),
        (Server(0.3, 600, 50.0), Server(0.2, 400, 50.0)),
    )
    settings = RippleSettings(containers=2)
    return ripple_run.outcome_of(settings, published, list(processes), measured)


def test_latency_counts_from_the_instant_when_an_update_was_due() -> None:
    # The second update was ordered before the first; the fourth was not stored.
    published = administered(a=([100 * MS, 101 * MS, 1_500 * MS, 1_600 * MS], [3, 2, 4, 0]))
    runs = {"a": rows((0, 1, 1), (1, 3, 111 * MS), (3, 4, 1_520 * MS))}
    found = outcome(published, collected(runs, Following("c1", "a", 4, b"x")))
    assert (found.updates, found.deliveries, found.lost) == (3, 3, 0)
    assert found.mean_ms == pytest.approx((10 + 11 + 20) / 3)
    assert (found.p50_ms, found.max_ms) == (pytest.approx(11), pytest.approx(20))
    assert found.per_second_ms == (10.5, 20.0)
    assert found.servers_cpu == pytest.approx(0.5)
    assert found.bytes_per_update == pytest.approx(1000 / 3)
    late = outcome(published, collected(runs, Following("c1", "a", 4, b"x")), begin_ns=200 * MS)
    assert late.mean_ms == pytest.approx(20)
    assert late.updates == 3


def test_what_is_stored_and_not_applied_is_lost() -> None:
    published = administered(a=([1, 2], [2, 3]), b=([], []))
    runs = {"a": rows((1, 3, 5), (1, 2, 6))}
    found = outcome(
        published,
        collected(runs, Following("c1", "a", 3, b"x"), Following("c2", "a", 2, b"z"), disorder=2),
        collected({}, Following("c3", "a", 3, b"y"), Following("c4", "b", 1, b"v")),
    )
    assert (found.lost, found.out_of_order, found.differing) == (1, 2, 1)
    verdicts = {bar.what: bar.holds for bar in ripple.bars(found)}
    assert verdicts["updates lost, by container"] is False
    assert verdicts["updates applied out of order"] is False
    assert verdicts["updates that were refused"] is True
    assert ripple.headline(found)["updates stored"] == 2
