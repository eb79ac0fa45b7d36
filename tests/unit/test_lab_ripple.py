"""The experiments of Ripple's evaluation: what is computed from what was measured, the ways of the
baseline systems, and the queueing model."""

from __future__ import annotations

import random
from collections import deque
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from swell.errors import SwellError
from swell.lab import ripple_adaptive, ripple_incremental, ripple_overhead, ripple_scale
from swell.lab import ripple_self as self_comparison
from swell.lab.baseline_protocol import (
    Mode,
    Outbox,
    dialed_by,
    home_of,
    next_hop,
    number_of,
    publish,
    read_stored,
    read_subscribe,
    read_update,
    stored,
    subscribe,
    update,
    value_of,
)
from swell.lab.baseline_publisher import arrivals
from swell.lab.baseline_run import missing, runs_only
from swell.lab.experiment import NOT_MEASURED, Lab, experiments
from swell.lab.fleet import dealt
from swell.lab.fleet_messages import Collected, Following
from swell.lab.ripple_publisher import Phase
from swell.lab.ripple_run import (
    Outcome,
    RippleSettings,
    Server,
    application_of,
    containers_of,
)
from swell.lab.ripple_self import LOADS, Switch
from swell.lab.ripple_sweep import (
    FIGURE_ONLY,
    SWELL,
    Sweep,
    System,
    bars,
    byte_ratios,
    is_passed,
    row_of,
    run_sweep,
)
from swell.lab.scale_model import Costs, Rates, latencies, spread, waits_of
from swell.settings import ConfigSettings
from swell.world import Plane


def outcome(
    mean_ms: float = 10.0,
    lost: int = 0,
    sent_bytes: int | None = 10_240,
    cpu: float = 0.2,
    per_second_ms: tuple[float, ...] = (),
) -> Outcome:
    """Ten updates, two servers."""
    return Outcome(
        seconds=1.0,
        updates=10,
        refused={},
        deliveries=100,
        lost=lost,
        out_of_order=0,
        differing=0,
        unreported=(),
        mean_ms=mean_ms,
        p50_ms=mean_ms,
        p99_ms=2 * mean_ms,
        max_ms=3 * mean_ms,
        per_second_ms=per_second_ms,
        servers=(Server(cpu, sent_bytes, 50.0), Server(cpu / 2, sent_bytes, 60.0)),
        containers_cpu=0.1,
        others_cpu=0.0,
        container_kib=100.0,
    )


def test_every_experiment_of_the_evaluation_is_a_command() -> None:
    found = {name for name in experiments() if name.startswith("ripple-")}
    figures = {"servers", "clients", "qps", "payload", "incremental", "overhead", "self"}
    assert found == {f"ripple-{name}" for name in figures | {"adaptive", "scale"}}


# Sweeps.


def test_a_point_is_passed_when_nothing_is_wrong_within_three_seconds() -> None:
    assert is_passed(outcome())
    assert not is_passed(outcome(lost=1))
    assert not is_passed(outcome(mean_ms=1501.0))
    assert not is_passed(outcome()._replace(unreported=("application-000",)))
    assert not is_passed(outcome()._replace(refused={"too busy": 1}))
    assert not is_passed(outcome(mean_ms=float("nan")))


def test_a_sweep_has_a_row_for_every_point_and_system(tmp_path: Path) -> None:
    asked: list[RippleSettings] = []

    def swell_run(settings: RippleSettings) -> Outcome:
        asked.append(settings)
        return outcome(mean_ms=float(settings.servers))

    def broken_run(settings: RippleSettings) -> Outcome:
        raise SwellError("the servers are not ready")

    sweep = Sweep(
        "ripple-toy",
        "toy",
        "servers",
        points=(1, 2, 3),
        quick_points=(2, 5),
        systems=(System(SWELL.name, swell_run), System("other", broken_run)),
        paper_ms={2: 7.0},
    )
    lab = Lab(quick=True, plots=tmp_path)
    report = run_sweep(lab, sweep)
    assert [settings.servers for settings in asked] == [2, 5]
    assert all(settings.containers == sweep.quick.containers for settings in asked)
    assert [(row["servers"], row["system"], row["passed"]) for row in report.rows] == [
        (2, "swell", True),
        (2, "other", False),
        (5, "swell", True),
        (5, "other", False),
    ]
    assert report.rows[1]["failure"] == "the servers are not ready"
    assert lab.plotted == [tmp_path / "ripple-toy.png"]
    assert lab.plotted[0].stat().st_size > 1000
    assert report.headline["points passed, other"] == 0
    assert report.headline["mean in ms at 5 servers, swell"] == 5.0


def test_the_papers_numbers_stand_beside_the_points_that_have_one(tmp_path: Path) -> None:
    system = System(SWELL.name, lambda settings: outcome())
    sweep = ripple_incremental.SWEEP._replace(name="ripple-toy", systems=(system,))
    rows = run_sweep(Lab(quick=True, plots=tmp_path), sweep).rows
    assert [row["paper_mean_ms"] for row in rows] == [103.0, FIGURE_ONLY, 70.0]


def rows_of(*sent: tuple[str, float | None, bool]) -> list[dict[str, Any]]:
    return [
        {
            "system": name,
            "server_KiB_per_update": kib,
            "passed": passed,
            "busy": 0.5,
            "lost": int(not passed),
            "out_of_order": 0,
        }
        for name, kib, passed in sent
    ]


def test_bytes_are_compared_with_the_better_of_the_others_that_passed() -> None:
    rows = rows_of(
        ("swell", 5.0, True), ("flooding", 100.0, True), ("reverse-path", 50.0, True),
        ("swell", 6.0, True), ("flooding", 1.0, False), ("reverse-path", 60.0, True),
        ("swell", 7.0, True), ("flooding", None, False), ("reverse-path", None, False),
    )  # fmt: skip
    assert byte_ratios(rows) == [0.1, 0.1]
    assert [bar.holds for bar in bars(rows)] == [True, True, True, True]


def test_a_point_that_fails_on_a_full_machine_is_told_apart() -> None:
    fails = row_of(outcome(mean_ms=5000.0)) | {"system": "swell"}
    assert [bar.holds for bar in bars([fails | {"busy": 0.97}])] == [True, True, True]
    assert [bar.holds for bar in bars([fails | {"busy": 0.6}])] == [True, True, False]
    assert [bar.holds for bar in bars([fails | {"busy": 0.97, "lost": 1}])] == [True, False, True]
    broken = {"system": "swell", "passed": False, "failure": "the publisher does not answer"}
    assert [bar.holds for bar in bars([broken])] == [False, True, True]


def test_incremental_updates_are_held_against_none() -> None:
    rows = [{"mean_ms": mean, "server_KiB_per_update": kib} for mean, kib in ((20, 40), (10, 9))]
    assert [bar.measured for bar in ripple_incremental.bars(rows)] == [0.5, 0.225]
    rows[1].pop("server_KiB_per_update")
    assert ripple_incremental.bars(rows)[1].measured == NOT_MEASURED


# Self-comparison, adaptive load balancing, overhead.


def test_every_mechanism_is_switched_off_under_some_load() -> None:
    switched = {switch.field for load in LOADS for switch in load.switches}
    assert sorted(switched) == ["adaptive", "incremental", "list_digests", "relaying"]
    assert all(getattr(ConfigSettings(), field) is True for field in switched)


def test_a_mechanism_must_be_missed_in_its_own_figure() -> None:
    switch = Switch("relaying", "server_KiB_per_update", 2.0, "")
    whole, row = row_of(outcome()), row_of(outcome(mean_ms=5.0, sent_bytes=30_720))
    compared = self_comparison.compared(row, whole, switch)
    assert (compared["latency_ratio"], compared["bytes_ratio"]) == (0.5, 3.0)
    assert self_comparison.bar_of(row, whole, switch, "default").holds
    assert not self_comparison.bar_of(whole, whole, switch, "default").holds
    assert self_comparison.bar_of({}, whole, switch, "default").measured == NOT_MEASURED


def test_phases_have_the_means_of_their_seconds() -> None:
    phases = (Phase(2.0, 10.0), Phase(1.0, 20.0), Phase(1.0, 5.0))
    means = ripple_adaptive.phase_means(phases, (1.0, 3.0, 10.0))
    assert means[:2] == [2.0, 10.0]
    assert np.isnan(means[2])


def test_the_changing_load_is_the_papers_in_proportion() -> None:
    settings = ripple_adaptive.settings_with(adaptive=False, quick=False)
    assert sum(phase.seconds for phase in settings.phases) == 150.0
    rates = [phase.rate_per_s for phase in settings.phases]
    assert [rate / rates[0] for rate in rates] == [1, 2, 4, 1, 3]
    assert (settings.config.adaptive, settings.slow) == (False, settings.applications)


def test_relays_by_name_must_be_slower() -> None:
    outcomes = {True: outcome(10.0, per_second_ms=(1.0,)), False: outcome(11.0)}
    assert [bar.holds for bar in ripple_adaptive.bars(outcomes)] == [True, False]
    assert ripple_adaptive.bars({**outcomes, False: outcome(15.0)})[1].measured == 1.5


def test_overhead_is_that_of_one_server() -> None:
    found = ripple_overhead.overhead_of(outcome(), RippleSettings(rate_per_s=100.0))
    assert found == ripple_overhead.Overhead(15.0, 55.0, 100.0)
    silent = ripple_overhead.overhead_of(outcome(sent_bytes=None), RippleSettings())
    assert silent.network_kib_s is None


def test_network_is_held_against_the_papers_ratios() -> None:
    systems = [
        System(name, lambda _, sent=sent: outcome(sent_bytes=sent))  # type: ignore[misc]
        for name, sent in (("swell", 100), ("flooding", 1000), ("reverse-path", 1000))
    ]
    rows = [ripple_overhead.measure(system, RippleSettings()) for system in systems]
    assert [bar.holds for bar in ripple_overhead.bars(rows)] == [True, True, False]
    ratios = ripple_overhead.ratios(rows)
    assert ratios["cpu percent, swell against flooding (the paper)"] == pytest.approx(0.6898, 1e-3)
    assert len(ratios) == 12


# Baselines.


def test_servers_flood_over_a_complete_graph() -> None:
    pairs = {(a, b) for a in range(7) for b in dialed_by(Mode.FLOODING, a)}
    assert len(pairs) == 7 * 6 / 2
    assert all(a > b for a, b in pairs)


@pytest.mark.parametrize("servers", [1, 2, 5, 20])
def test_every_server_of_the_tree_finds_every_other(servers: int) -> None:
    links = {(a, b) for a in range(servers) for b in dialed_by(Mode.REVERSE_PATH, a)}
    assert len(links) == servers - 1
    for start in range(servers):
        for home in range(servers):
            at, hops = start, 0
            while at != home:
                after = next_hop(at, home)
                assert (at, after) in links or (after, at) in links
                at, hops = after, hops + 1
                assert hops <= 2 * servers.bit_length()


def test_frames_of_the_baselines_are_read_as_written() -> None:
    application = number_of(application_of(17))
    assert (application, home_of(application, 10)) == (17, 7)
    assert read_subscribe(subscribe(17)) == 17
    assert read_stored(stored(17, 70_000, 70_001)) == (17, 70_000, 70_001)
    for data in (publish(17, 5, b"value"), update(17, 5, b"value")):
        assert (read_update(data), value_of(data)) == ((17, 5), b"value")


class Narrow:
    """A link with room for so many frames."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.sent: deque[bytes] = deque()

    def send(self, frame: bytes, plane: Plane = Plane.CONTROL) -> bool:
        if self.room:
            self.room -= 1
            self.sent.append(frame)
            return True
        return False


def test_frames_wait_for_a_slow_link_in_order_and_in_bounds() -> None:
    link = Narrow(room=2)
    outbox = Outbox(link, bytes_max=40)  # type: ignore[arg-type]
    frames = [b"frame %04d" % number for number in range(7)]
    assert [outbox.send(frame) for frame in frames] == [True] * 6 + [False]
    link.room = 3
    outbox.on_writable()
    assert list(link.sent) == frames[:5]
    link.room = len(frames)
    assert outbox.send(b"last")
    outbox.on_writable()
    assert list(link.sent) == [*frames[:-1], b"last"]


def test_updates_are_due_at_the_rate_of_their_phase() -> None:
    phases = (Phase(100.0, 5.0), Phase(100.0, 50.0), Phase(1.0, 10.0))
    due_s = list(takewhile(lambda at: at < 400.0, arrivals(phases, random.Random(1))))
    assert due_s == sorted(due_s)
    counts = np.histogram(due_s, (0, 100, 200, 400))[0]
    assert counts == pytest.approx([500, 5000, 2000], rel=0.15)


def test_what_an_answer_repeats_is_counted_once() -> None:
    following = (Following("c1", "a", 4, b""), Following("c2", "a", 7, b""))
    collected = Collected({"a": b"runs"}, following, 3, {}, 1.0, 50.0)
    assert missing([collected], {"a": 7}) == 3
    kept = runs_only(collected)
    assert (kept.runs, kept.following, kept.disorder, kept.resident_mib) == (
        {"a": b"runs"}, (), 0, 0.0,
    )  # fmt: skip


def test_slow_containers_have_a_process_of_their_own() -> None:
    hosted = containers_of(RippleSettings(containers=10, applications=2, slow=2, slow_s=0.5))
    *parts, slow = dealt(hosted, 3)
    assert [one.name for one in slow] == ["c00000", "c00001"]
    assert {one.owner for one in slow} == {application_of(0), application_of(1)}
    assert sorted(one.name for part in parts for one in part) == [one.name for one in hosted[2:]]
    assert len(dealt(hosted[2:], 3)) == 3


# The model.

COSTS = Costs(0.004, 0.001, 0.00002, 0.0001, 0.0005)


def test_waits_are_those_of_the_textbook() -> None:
    """M/M/1: at a load of 0.6 and a service of 4 ms, the mean wait is 6 ms."""
    rates = Rates(np.full(200, 150.0), np.zeros(200))
    waits = waits_of(rates, COSTS, np.random.default_rng(3))
    assert float(waits.mean()) == pytest.approx(0.006, rel=0.05)


def test_more_updates_take_longer_and_too_many_for_ever() -> None:
    rng = np.random.default_rng(1)
    found = [latencies(spread(60, rate, rng), COSTS, 25) for rate in (600.0, 5000.0, 20_000.0)]
    assert found[0].mean_ms < found[1].mean_ms < found[2].mean_ms == float("inf")
    assert list(found[1].percentiles_ms) == sorted(found[1].percentiles_ms)
    assert found[0].busy == pytest.approx(600 * (0.004 + 2 * 0.001) / 60)
    assert found[0].busiest > found[0].busy


def test_costs_are_the_difference_of_two_rates() -> None:
    low, high = outcome(cpu=0.1), outcome(cpu=0.3)
    servers = [Server(cpu=0.05, sent_bytes=100, resident_mib=1.0)] * 2
    low = low._replace(servers=(*servers, Server(0.1, 900, 1.0)))
    servers = [Server(cpu=0.15, sent_bytes=100, resident_mib=1.0)] * 2
    high = high._replace(servers=(Server(0.3, 900, 1.0), *servers), containers_cpu=0.6)
    costs = ripple_scale.costs_of([low, high], (50.0, 150.0), 0.001, 0.0002)
    assert costs == pytest.approx(Costs(0.002, 0.001, 0.0002, 0.0002, 0.001))
    backwards = ripple_scale.costs_of([high, low], (50.0, 150.0), 0.001, 0.0002)
    assert backwards.primary_s == ripple_scale.COST_S_MIN


def test_the_model_is_shown_for_both_readings_of_the_papers_rates() -> None:
    costs = Costs(0.0004, 0.0002, 0.00002, 0.0001, 0.0005)
    rows = ripple_scale.modelled(costs)
    assert [(row["counted"], row["rate_per_s"]) for row in rows] == [
        (reading, rate)
        for reading in ("updates", "deliveries")
        for rate in (26_000, 83_000, 139_000)
    ]
    assert all(bar.holds for bar in ripple_scale.bars(rows))
    check = ripple_scale.checked(outcome(), costs)
    assert [row["what"] for row in check] == ["measured here", "the model"]
    overloaded = ripple_scale.bars(ripple_scale.modelled(costs._replace(primary_s=0.01)))
    assert not overloaded[0].holds
