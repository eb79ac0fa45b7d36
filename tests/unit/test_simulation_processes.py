"""Processes of the simulation: lives, pauses, clocks, timers."""

from __future__ import annotations

import pytest

from swell.simulation import Simulation
from swell.wire.limits import HANDSHAKE_S_MAX, QUEUE_BYTES_MAX_DATA
from swell.world import Address, Plane, World
from tests.unit.simulation_toys import Pair, Recorder, add, node_of


def test_timers_fire_in_order_and_can_be_cancelled() -> None:
    simulation = Simulation(1)
    node = node_of(add(simulation, "a", "east"))
    start_s = node.world.now()
    node.timer(2.0, "late")
    node.timer(1.0, "soon")
    timer = node.world.call_later(1.5, lambda: node.log.append("cancelled"))
    timer.cancel()
    timer.cancel()
    simulation.run_until(5.0)
    assert [what for what, _ in node.log] == ["soon", "late"]
    assert [at - start_s for _, at in node.log] == pytest.approx([1.0, 2.0])


def test_cancelled_timers_do_not_pile_up_on_the_heap() -> None:
    simulation = Simulation(1)
    node = node_of(add(simulation, "a", "east"))
    node.timer(5.0, "kept")
    for _ in range(10_000):
        node.world.call_later(1000.0, node.stop).cancel()
    assert len(simulation.heap) < 2_500
    simulation.run_until(10.0)
    assert [what for what, _ in node.log] == ["kept"]


def test_step_runs_one_event_and_run_until_true_stops_when_it_holds() -> None:
    simulation = Simulation(1)
    node = node_of(add(simulation, "a", "east"))
    assert not simulation.step()
    node.timer(1.0, "one")
    node.timer(1.0, "two")
    assert simulation.step()
    assert len(node.log) == 1
    assert simulation.time_s == 1.0
    node.timer(3.0, "three")
    assert simulation.run_until_true(lambda: len(node.log) == 3, within_s=10.0, every_s=0.5)
    assert simulation.time_s == 4.0
    assert not simulation.run_until_true(lambda: False, within_s=2.0)
    assert simulation.time_s == 6.0


def test_a_killed_process_resets_its_links_behind_the_frames_in_flight() -> None:
    pair = Pair()
    pair.link_a.send(b"last words")
    pair.link_b.send(b"for nobody")
    old = pair.a
    pair.process_a.crash()
    pair.simulation.run_for(1.0)
    assert pair.b.log == [("up", "a"), b"last words", ("down", "a", "reset")]
    assert old.log == [("up", "b")]
    assert pair.process_a.node is None
    assert pair.process_a.failed


def test_after_a_power_loss_peers_hear_nothing_until_they_send() -> None:
    pair = Pair()
    pair.process_a.crash(power=True)
    pair.simulation.run_for(100.0)
    assert pair.b.downs() == []
    assert pair.link_b.send(b"anybody?")
    pair.simulation.run_for(19.9)
    assert pair.b.downs() == []
    pair.simulation.run_for(0.2)
    assert pair.b.downs() == ["timeout"]


def test_a_power_loss_is_noticed_across_a_clogged_path_too() -> None:
    pair = Pair()
    pair.process_a.crash(power=True)
    pair.simulation.network.clog(["a"], ["b"], 0.1)
    assert pair.link_b.send(b"anybody?")
    pair.simulation.run_for(20.2)
    assert pair.b.downs() == ["timeout"]


@pytest.mark.parametrize("sent_before", [True, False])
def test_a_machine_that_is_up_again_resets_the_links_of_its_past(sent_before: bool) -> None:
    pair = Pair()
    pair.process_a.crash(power=True)
    if sent_before:
        pair.link_b.send(b"anybody?")
    pair.simulation.run_for(5.0)
    pair.process_a.start()
    if not sent_before:
        pair.simulation.run_for(5.0)
        pair.link_b.send(b"anybody?")
    pair.simulation.run_for(1.0)
    assert pair.b.downs() == ["reset"]
    assert pair.process_a.starts == 2
    assert pair.a.frames() == []


def test_a_graceful_stop_says_goodbye_and_closes() -> None:
    pair = Pair()
    old = pair.a
    pair.process_a.stop()
    pair.simulation.run_for(1.0)
    assert pair.b.log == [("up", "a"), b"goodbye", ("down", "a", "closed")]
    assert old.log == [("up", "b")]
    assert pair.process_a.ended == "stopped"
    assert not pair.process_a.failed


def test_halt_ends_the_node_at_once() -> None:
    pair = Pair()
    node = pair.a
    node.timer(1.0, "never")
    node.world.halt("sync failed")
    assert not pair.link_a.send(b"never")
    pair.simulation.run_for(5.0)
    assert node.log == [("up", "b")]
    assert pair.process_a.ended == "sync failed"
    assert pair.b.downs() == ["reset"]


def test_timers_of_a_former_life_never_fire() -> None:
    simulation = Simulation(1)
    process = add(simulation, "a", "east")
    first = node_of(process)
    first.timer(1.0, "old")
    process.crash()
    process.restart()
    node_of(process).timer(1.0, "new")
    simulation.run_until(5.0)
    assert first.log == []
    assert [what for what, _ in node_of(process).log] == ["new"]


def test_after_a_pause_due_timers_run_before_held_frames() -> None:
    pair = Pair()
    pair.b.timer(0.5, "due")
    pair.b.timer(3.0, "not due")
    pair.process_b.pause()
    pair.link_a.send(b"one")
    pair.link_a.send(b"two")
    before_s = pair.b.world.now()
    pair.simulation.run_for(2.0)
    assert pair.b.log == [("up", "a")]
    assert pair.link_a.queued_bytes == 6
    pair.process_b.resume()
    pair.simulation.run_for(0.0)
    assert pair.b.log == [("up", "a"), ("due", before_s + 2.0), b"one", b"two"]
    assert pair.link_a.queued_bytes == 0
    pair.simulation.run_for(1.5)
    assert pair.b.log[-1][0] == "not due"
    assert pair.a.downs() == []


def test_frames_to_a_paused_process_push_back_and_never_time_out() -> None:
    pair = Pair()
    pair.process_b.pause()
    pair.link_a.send(bytes(QUEUE_BYTES_MAX_DATA), Plane.DATA)
    pair.simulation.run_for(100.0)
    assert not pair.link_a.send(b"more", Plane.DATA)
    pair.process_b.resume()
    pair.simulation.run_for(1.0)
    assert pair.a.log == [("up", "b"), ("writable", "b")]
    assert pair.link_a.send(b"more", Plane.DATA)


def test_a_dial_to_a_paused_process_waits_or_times_out() -> None:
    pair = Pair(connect=False)
    pair.process_b.pause()
    pair.a.world.dial(Address("b", 0))
    pair.simulation.run_for(HANDSHAKE_S_MAX + 0.1)
    assert pair.a.downs() == ["timeout"]
    pair.a.world.dial(Address("b", 0))
    pair.simulation.run_for(1.0)
    pair.process_b.resume()
    pair.simulation.run_for(1.0)
    assert pair.a.log[-1] == ("up", "b")
    assert pair.b.log == [("up", "a")]


def test_a_suspended_machine_acknowledges_nothing() -> None:
    pair = Pair()
    before_s = pair.b.world.now()
    pair.process_b.suspend()
    pair.link_a.send(b"unread")
    pair.simulation.run_for(30.0)
    assert pair.a.downs() == ["timeout"]
    pair.process_b.resume()
    pair.simulation.run_for(1.0)
    assert pair.b.log == [("up", "a"), b"unread", ("down", "a", "reset")]
    assert pair.b.world.now() - before_s == pytest.approx(31.0)


def test_a_short_suspend_breaks_nothing() -> None:
    pair = Pair()
    pair.process_b.suspend()
    pair.link_a.send(b"read later")
    pair.simulation.run_for(10.0)
    pair.process_b.resume()
    pair.simulation.run_for(60.0)
    assert pair.a.downs() == pair.b.downs() == []
    assert pair.b.frames() == [b"read later"]


def test_a_slow_process_is_late_but_in_order_also_when_it_recovers_and_pauses() -> None:
    pair = Pair()
    sent = []

    def send_some(count: int) -> None:
        for _ in range(count):
            sent.append(b"%d" % len(sent))
            pair.link_a.send(sent[-1])
            pair.simulation.run_for(0.01)

    pair.b.timer(0.5, "timer")
    pair.process_b.slow(1.0)
    send_some(20)
    assert len(pair.b.frames()) < 10
    pair.process_b.pause()
    send_some(10)
    pair.process_b.resume()
    send_some(10)
    pair.process_b.slow(0.0)
    send_some(10)
    assert len(pair.b.frames()) < 50
    pair.simulation.run_for(2.0)
    assert pair.b.frames() == sent
    assert [entry[0] for entry in pair.b.log if entry[0] == "timer"] == ["timer"]
    pair.link_a.send(b"prompt")
    pair.simulation.run_for(0.011)
    assert pair.b.frames()[-1] == b"prompt"


def test_frames_queue_behind_the_late_announcement_of_their_link() -> None:
    pair = Pair(connect=False)
    pair.process_b.slow(2.0)
    link = pair.a.world.dial(Address("b", 0))
    assert pair.simulation.run_until_true(lambda: pair.a.log == [("up", "b")], 5.0, every_s=0.001)
    sent = [b"%d" % number for number in range(5)]
    for frame in sent:
        assert link.send(frame)
    pair.simulation.run_for(10.0)
    assert pair.b.log == [("up", "a"), *sent]


def test_after_halt_nothing_that_the_node_still_does_has_an_effect() -> None:
    pair = Pair(connect=False)
    node = pair.a
    node.world.halt("over")
    node.world.dial(Address("b", 0))
    node.world.call_later(0.0, lambda: node.log.append("timer"))
    node.world.disk.append("log", b"x")
    node.world.disk.sync("log", node.log.append)
    node.world.offload(len, b"", node.log.append)
    pair.simulation.run_for(10.0)
    assert node.log == pair.b.log == []
    assert pair.process_a.disk.list() == {}


def test_clocks_differ_between_machines_and_start_anew_after_a_power_loss() -> None:
    pair = Pair(connect=False)
    assert pair.a.world.now() != pytest.approx(pair.b.world.now(), abs=1.0)
    assert pair.a.world.wall_us() == pair.b.world.wall_us()
    pair.process_a.crash(power=True)
    pair.simulation.run_for(10.0)
    pair.process_a.start()
    assert pair.a.world.now() == pytest.approx(5.0)
    assert pair.a.world.wall_us() == pair.b.world.wall_us()


def test_a_skewed_clock_drifts_and_its_timers_with_it() -> None:
    pair = Pair(connect=False)
    pair.a.timer(10.0, "a")
    start_s, wall_us = pair.a.world.now(), pair.a.world.wall_us()
    pair.process_a.skew(3.0, rate=1.25)
    assert pair.a.world.wall_us() - wall_us == 3_000_000
    pair.simulation.run_for(7.9)
    assert pair.a.log == []
    pair.simulation.run_for(0.1)
    assert [(what, at - start_s) for what, at in pair.a.log] == [("a", pytest.approx(10.0))]
    pair.process_a.skew(0.0, rate=1.0)
    assert pair.a.world.wall_us() - pair.b.world.wall_us() == pytest.approx(2_000_000, abs=2)
    pair.simulation.run_for(1.0)
    assert pair.a.world.now() - start_s == pytest.approx(11.0)


def test_offload_gives_the_result_or_the_error_as_an_event() -> None:
    simulation = Simulation(1)
    node = node_of(add(simulation, "a", "east"))
    node.world.offload(len, b"four", node.log.append)
    node.world.offload(int, "x", node.log.append)
    assert node.log == []
    simulation.run_for(0.01)
    node.log.sort(key=str)
    assert node.log[0] == 4
    assert isinstance(node.log[1], ValueError)


def test_chance_differs_between_processes_and_lives_but_not_between_runs() -> None:
    def draw(seed: int) -> list[tuple[float, bytes]]:
        simulation = Simulation(seed)
        drawn = []

        def factory(world: World) -> Recorder:
            drawn.append((world.rng.random(), world.entropy(8)))
            return Recorder(world)

        add(simulation, "a", "east", factory).crash()
        simulation.processes["a"].start()
        add(simulation, "b", "east", factory)
        return drawn

    first = draw(1)
    assert first == draw(1)
    assert len(set(first)) == 3
    assert not set(first) & set(draw(2))
