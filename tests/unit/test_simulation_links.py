"""Links of the simulation: order, ends, partitions, back-pressure."""

from __future__ import annotations

import pytest

from swell.simulation import Rule, Simulation, SimulationFailure
from swell.wire.limits import HANDSHAKE_S_MAX, QUEUE_BYTES_MAX_CONTROL, QUEUE_BYTES_MAX_DATA
from swell.world import Address, Plane
from tests.unit.simulation_toys import Pair, Recorder, add, node_of


def test_a_link_comes_up_on_both_sides_and_names_its_peer() -> None:
    pair = Pair(connect=False)
    link = pair.a.world.dial(Address("b", 0), "b")
    assert not link.send(b"too early")
    pair.simulation.run_for(0.039)
    assert pair.a.log == []
    pair.simulation.run_for(0.002)
    assert pair.a.log == [("up", "b")]
    assert pair.b.log == []
    pair.simulation.run_for(0.01)
    assert pair.b.log == [("up", "a")]
    assert link.dialed
    assert not pair.b.links["a"].dialed
    assert pair.b.links["a"].address == Address("a", 0)


def test_frames_keep_their_order_on_a_link_whatever_the_jitter() -> None:
    pair = Pair(jitter=5.0)
    sent = [b"%d" % number for number in range(200)]
    for frame in sent:
        assert pair.link_a.send(frame)
        pair.simulation.run_for(0.001)
    pair.simulation.run_for(1.0)
    assert pair.b.frames() == sent


def test_frames_of_different_links_overtake_each_other() -> None:
    simulation = Simulation(3, jitter=5.0)
    target = add(simulation, "target", "east")
    senders = [add(simulation, f"n{number}", "west") for number in range(20)]
    for sender in senders:
        node_of(sender).world.dial(Address("target", 0))
    simulation.run_for(2.0)
    for sender in senders:
        node_of(sender).links["target"].send(sender.name.encode())
    simulation.run_for(1.0)
    frames = node_of(target).frames()
    assert sorted(frames) == sorted(sender.name.encode() for sender in senders)
    assert frames != [sender.name.encode() for sender in senders]


def test_latency_may_be_a_function_or_a_matrix() -> None:
    for latency in (lambda a, b: 0.3, {("west", "east"): 0.3}):
        simulation = Simulation(1, latency=latency, jitter=0.0)
        a, b = add(simulation, "a", "east"), add(simulation, "b", "west")
        assert simulation.network.latency_s(a, b) == 0.3


@pytest.mark.parametrize(
    ("host", "identity", "reason"),
    [("nobody", "", "refused"), ("b", "somebody", "identity")],
)
def test_a_dial_that_nobody_wants_goes_down(host: str, identity: str, reason: str) -> None:
    pair = Pair(connect=False)
    pair.a.world.dial(Address(host, 0), identity)
    pair.simulation.run_for(0.1)
    assert pair.a.downs() == [reason]
    assert pair.b.log == []


def test_a_dial_to_a_process_that_is_down_is_refused_and_to_a_dead_machine_times_out() -> None:
    for power, reason in ((False, "refused"), (True, "timeout")):
        pair = Pair(connect=False)
        pair.process_b.crash(power=power)
        pair.a.world.dial(Address("b", 0))
        pair.simulation.run_for(HANDSHAKE_S_MAX + 0.1)
        assert pair.a.downs() == [reason]


@pytest.mark.parametrize("both_ways", [True, False])
def test_a_dial_across_a_cut_times_out_unless_it_heals_in_time(both_ways: bool) -> None:
    pair = Pair(connect=False)
    rule = pair.simulation.network.partition(["east"], ["west"], both_ways)
    node_of(pair.process_b).world.dial(Address("a", 0))
    pair.simulation.run_for(HANDSHAKE_S_MAX + 0.1)
    assert pair.b.downs() == ["timeout"]
    pair.a.world.dial(Address("b", 0))
    pair.simulation.run_for(2.0)
    pair.simulation.network.remove(rule)
    pair.simulation.run_for(0.1)
    assert pair.a.log == [("up", "b")]


def test_close_is_heard_by_the_other_side_only_and_behind_the_frames() -> None:
    pair = Pair()
    pair.link_a.send(b"last")
    pair.link_a.close()
    assert not pair.link_a.send(b"more")
    pair.link_b.send(b"lost")
    pair.simulation.run_for(1.0)
    assert pair.b.log == [("up", "a"), b"last", ("down", "a", "closed")]
    assert pair.a.log == [("up", "b")]


def test_a_lost_link_is_down_on_both_sides_and_its_frames_are_gone() -> None:
    pair = Pair()
    pair.link_a.send(b"in flight")
    [link] = pair.simulation.network.links_between("a", "b")
    pair.simulation.network.lose(link)
    pair.simulation.run_for(1.0)
    assert pair.a.downs() == pair.b.downs() == ["lost"]
    assert pair.b.frames() == []


def test_a_partition_holds_frames_and_delivers_them_after_healing_control_first() -> None:
    pair = Pair()
    rule = pair.simulation.network.partition(["a"], ["b"])
    assert pair.link_a.send(b"data", Plane.DATA)
    assert pair.link_a.send(b"control")
    assert pair.link_a.queued_bytes == 11
    pair.simulation.run_for(19.0)
    assert pair.b.frames() == []
    pair.simulation.network.remove(rule)
    pair.simulation.run_for(1.0)
    assert pair.b.frames() == [b"control", b"data"]
    assert pair.link_a.queued_bytes == 0
    pair.simulation.run_for(60.0)
    assert pair.a.downs() == []


def test_a_long_partition_breaks_the_link_on_both_sides() -> None:
    pair = Pair()
    pair.simulation.network.partition(["a"], ["b"])
    pair.link_a.send(b"never")
    pair.simulation.run_for(20.1)
    assert pair.a.downs() == ["timeout"]
    assert pair.b.downs() == []
    pair.simulation.network.clear()
    pair.simulation.run_for(1.0)
    assert pair.b.log == [("up", "a"), ("down", "a", "reset")]


def test_a_silent_side_of_a_forgotten_link_is_reset_when_it_sends() -> None:
    pair = Pair()
    pair.simulation.network.partition(["a"], ["b"])
    pair.link_a.send(b"never")
    pair.simulation.run_for(60.0)
    pair.simulation.network.clear()
    pair.simulation.run_for(60.0)
    assert pair.b.downs() == []
    assert pair.link_b.send(b"anybody?")
    pair.simulation.run_for(1.0)
    assert pair.b.downs() == ["reset"]


def test_a_one_way_partition_lets_frames_back_through_but_no_acknowledgement() -> None:
    pair = Pair()
    pair.simulation.network.partition(["a"], ["b"], both_ways=False)
    pair.link_a.send(b"held")
    pair.link_b.send(b"passes")
    pair.simulation.run_for(1.0)
    assert pair.a.frames() == [b"passes"]
    assert pair.b.frames() == []
    assert pair.link_b.queued_bytes == len(b"passes")
    pair.simulation.run_for(20.0)
    assert pair.a.downs() == ["timeout"]
    assert pair.b.downs() == ["timeout"]


def test_a_clogged_path_trickles_in_order_and_pushes_back() -> None:
    pair = Pair()
    rule = pair.simulation.network.clog(["a"], ["b"], 0.1)
    sent = 0
    while pair.link_a.send(b"%08d" % sent * 1024, Plane.DATA):
        sent += 1
    assert sent == QUEUE_BYTES_MAX_DATA // (8 * 1024)
    assert pair.simulation.run_until_true(lambda: len(pair.a.log) == 2, 1.0, every_s=0.001)
    assert pair.a.log == [("up", "b"), ("writable", "b")]
    assert pair.link_a.queued_bytes == QUEUE_BYTES_MAX_DATA // 2
    assert 0 < len(pair.b.frames()) < sent
    pair.simulation.network.remove(rule)
    pair.simulation.run_for(1.0)
    assert pair.b.frames() == [b"%08d" % number * 1024 for number in range(sent)]
    assert pair.link_a.queued_bytes == 0


def test_a_latency_spike_delays_frames() -> None:
    pair = Pair()
    pair.simulation.network.add(Rule(frozenset({"east"}), frozenset({"west"}), extra_s=0.5))
    pair.link_a.send(b"late")
    pair.simulation.run_for(0.5)
    assert pair.b.frames() == []
    pair.simulation.run_for(0.02)
    assert pair.b.frames() == [b"late"]


def test_control_has_a_higher_mark_than_data() -> None:
    pair = Pair()
    pair.simulation.network.partition(["a"], ["b"])
    block = bytes(QUEUE_BYTES_MAX_DATA)
    assert pair.link_a.send(block, Plane.DATA)
    assert not pair.link_a.send(b"x", Plane.DATA)
    while pair.link_a.send(block):
        pass
    assert pair.link_a.queued_bytes == QUEUE_BYTES_MAX_CONTROL
    assert pair.simulation.counters["send-refused"] == 2


def test_a_wire_error_ends_the_link_on_both_sides_and_is_counted() -> None:
    pair = Pair()
    pair.link_a.send(b"bad")
    pair.link_a.send(b"ignored")
    pair.simulation.run_for(1.0)
    assert pair.b.log == [("up", "a"), ("down", "a", "wire-error bad-body")]
    assert pair.a.downs() == ["closed"]
    assert pair.simulation.counters["wire-error bad-body"] == 1


def test_any_other_error_stops_the_run_and_names_seed_time_and_process() -> None:
    pair = Pair(seed=77)
    pair.link_a.send(b"bug")
    with pytest.raises(SimulationFailure, match=r"seed 77, virtual time 1\.010000 s in process b"):
        pair.simulation.run_for(1.0)


def test_probes_tell_a_kernel_from_a_process() -> None:
    pair = Pair(connect=False)

    def probe(kind: str) -> bool:
        answers: list[bool] = []
        pair.a.world.probe(Address("b", 0), kind, 1.0, answers.append)
        assert pair.simulation.run_until_true(lambda: bool(answers), 1.1)
        return answers[0]

    assert (probe("tcp"), probe("http:/health")) == (True, True)
    pair.process_b.pause()
    assert (probe("tcp"), probe("http:/health")) == (True, False)
    pair.process_b.crash()
    assert (probe("tcp"), probe("http:/health")) == (False, False)
    pair.process_b.start()
    pair.simulation.network.partition(["a"], ["b"])
    assert probe("tcp") is False


def test_nothing_is_kept_of_links_that_ended() -> None:
    simulation = Simulation(5)
    a, b = add(simulation, "a", "east"), add(simulation, "b", "east")
    for _ in range(50):
        node_of(a).world.dial(Address("b", 0))
        simulation.run_for(1.0)
        node_of(a).links["b"].send(b"x")
        node_of(a).links["b"].close(drain=True)
        simulation.run_for(1.0)
    assert a.world is not None
    assert b.world is not None
    assert not a.world.links
    assert not b.world.links
    assert not simulation.heap
    assert isinstance(b.node, Recorder)
    assert len(b.node.frames()) == 50
