"""A client's session against nodes that drop, redirect, refuse and die: stable numbers, deadlines,
and the right word for every end."""

from __future__ import annotations

from zlib import crc32

import pytest

from swell.client.session_numbers import SESSION_S
from swell.client.session_peers import OPEN_S_MAX
from swell.client.session_pending import Answer
from swell.client.store_session import OPEN_MAX, SENT_MAX
from swell.dht import operations as ops
from swell.dht.operations import truth_of, value_of
from swell.errors import OutcomeUnknownError, RefusedError, SwellError, UnavailableError
from swell.simulation.link import SimLink
from swell.simulation.outgoing import UP
from swell.store import payload
from swell.store.messages import Execute, Status
from swell.store.once import opened_s
from tests.unit.store_toys import SLOTS, Mood, ToyCluster, ToyNode, serve


def key_of_slot(slot: int) -> str:
    return next(f"k{k}" for k in range(1000) if crc32(f"k{k}".encode()) % SLOTS == slot)


def at_first(status: Status | None, times: int = 1, then: Mood = serve) -> Mood:
    """Treat the first requests like this, the others as usual."""
    left = times

    def mood(node: ToyNode, execute: Execute) -> Status | None:
        nonlocal left
        left -= 1
        return status if left >= 0 else then(node, execute)

    return mood


def body_of(outcome: Answer | SwellError) -> bytes:
    assert isinstance(outcome, Answer), outcome
    return outcome.body


def test_operations_go_to_the_primary_of_their_slot() -> None:
    toy = ToyCluster()
    toy.store.primaries = [1 + slot % 3 for slot in range(SLOTS)]
    for slot in range(SLOTS):
        assert truth_of(body_of(toy.run(ops.put(key_of_slot(slot), b"v"))))
        assert value_of(body_of(toy.run(ops.get(key_of_slot(slot))))) == b"v"
    by_slot = {execute.slot: name for name, execute in toy.store.heard}
    assert by_slot == {slot: f"n{1 + slot % 3}" for slot in range(SLOTS)}
    assert len(toy.store.heard) == 2 * SLOTS  # nothing was sent twice


def test_a_redirect_is_followed_at_once_and_remembered() -> None:
    toy = ToyCluster()
    toy.run(ops.put("a", b"1"))
    toy.store.primaries = [2] * SLOTS
    begun = toy.simulation.time_s
    assert truth_of(body_of(toy.run(ops.put("a", b"2"))))
    assert toy.simulation.time_s - begun < 0.1
    toy.run(ops.put("a", b"3"))
    assert [name for name, _ in toy.store.heard] == ["n1", "n1", "n2", "n2"]
    assert ("redirected", "n2") in [(n.what, n.address.host) for n in toy.notices]


def test_a_contradiction_refreshes_the_whole_table() -> None:
    toy = ToyCluster()
    toy.run(ops.put(key_of_slot(0), b"1"))
    toy.simulation.run_for(2.0)
    toy.store.primaries = [2] * SLOTS
    toy.run(ops.put(key_of_slot(0), b"2"))
    toy.simulation.run_for(0.5)
    toy.run(ops.put(key_of_slot(1), b"2"))
    assert toy.store.heard[-1][0] == "n2"
    assert toy.client.counters["rerouted"] == 1


@pytest.mark.parametrize("status", [Status.BUSY, Status.RETRY, None])
def test_the_number_stays_the_same_until_it_is_done(status: Status | None) -> None:
    toy = ToyCluster()
    toy.store.mood = at_first(status, 3)
    assert truth_of(body_of(toy.run(ops.put_if_absent("a", b"1"))))
    assert len(toy.store.heard) >= 2
    assert len({(e.session, e.number, e.body) for _, e in toy.store.heard}) == 1


def test_a_silent_node_is_left_for_another() -> None:
    toy = ToyCluster()
    silent = ["n1"]
    toy.store.mood = lambda node, execute: (
        None if node.contact.name in silent else serve(node, execute)
    )
    outcomes = toy.begin(ops.put("a", b"1"))
    toy.simulation.run_for(1.0)
    assert outcomes == []
    assert len({name for name, _ in toy.store.heard}) >= 2
    toy.store.primaries = [3] * SLOTS
    toy.simulation.run_for(1.5)
    assert truth_of(body_of(outcomes[0]))
    assert len(set(toy.store.numbers())) == 1


def test_an_executed_command_whose_answer_was_lost_is_executed_once() -> None:
    toy = ToyCluster()
    toy.run(ops.put("a", b"1"))

    def execute_and_die(node: ToyNode, execute: Execute) -> Status | None:
        toy.store.apply(execute)
        toy.store.primaries = [2] * SLOTS
        toy.store.mood = serve
        toy.simulation.call_later(0.001, toy.simulation.processes["n1"].crash)
        return None

    toy.store.mood = execute_and_die
    # Executed twice it would find its own value and say so.
    assert value_of(body_of(toy.run(ops.put_and_retrieve("a", b"2")))) == b"1"
    assert len(set(toy.store.numbers())) == 2
    assert value_of(body_of(toy.run(ops.get("a")))) == b"2"


def test_the_lowest_open_number_is_told() -> None:
    toy = ToyCluster()
    toy.run(ops.put("a", b"1"))
    first = toy.store.numbers()[0]
    toy.store.mood = lambda node, execute: (
        None if execute.number == first + 1 else serve(node, execute)
    )
    blocked = toy.begin(ops.put("a", b"2"), deadline_s=1.0)
    toy.run(ops.put("a", b"3"))
    told = [(e.number - first, e.lowest - first) for _, e in toy.store.heard]
    assert told[:3] == [(0, 0), (1, 1), (2, 1)]
    toy.simulation.run_for(1.2)
    assert isinstance(blocked[0], OutcomeUnknownError)
    toy.run(ops.put("a", b"4"))
    assert toy.store.heard[-1][1].lowest == first + 3


# How operations end.


def test_a_command_without_an_answer_is_unknown() -> None:
    toy = ToyCluster()
    toy.run(ops.put("a", b"1"))
    toy.store.mood = lambda node, execute: None
    begun = toy.simulation.time_s
    assert isinstance(toy.run(ops.put("a", b"2"), deadline_s=2.0), OutcomeUnknownError)
    assert 2.0 <= toy.simulation.time_s - begun <= 2.1
    assert toy.client.open_operations == 0


def test_a_read_without_an_answer_is_unavailable() -> None:
    toy = ToyCluster()
    toy.store.mood = lambda node, execute: None
    assert isinstance(toy.run(ops.get("a"), deadline_s=2.0), UnavailableError)


@pytest.mark.parametrize("status", [Status.BUSY, Status.REDIRECT])
def test_a_command_that_nobody_would_take_was_not_executed(status: Status) -> None:
    toy = ToyCluster()
    toy.store.mood = lambda node, execute: status
    outcome = toy.run(ops.put("a", b"1"), deadline_s=2.0)
    assert isinstance(outcome, UnavailableError)
    assert "not executed" in str(outcome)
    assert 3 <= len(toy.store.heard) <= 40  # it tries, and does not hammer


def test_a_command_that_one_node_lost_track_of_is_unknown() -> None:
    toy = ToyCluster()
    toy.store.mood = at_first(Status.RETRY, 1, lambda node, execute: Status.BUSY)
    assert isinstance(toy.run(ops.put("a", b"1"), deadline_s=2.0), OutcomeUnknownError)


def test_a_command_that_was_never_sent_was_not_executed() -> None:
    toy = ToyCluster()
    toy.run(ops.put("a", b"1"))
    for name in ("n1", "n2", "n3"):
        toy.simulation.processes[name].crash()
    toy.simulation.run_for(0.1)
    outcome = toy.run(ops.put("a", b"2"), deadline_s=1.0)
    assert isinstance(outcome, UnavailableError)
    for name in ("n1", "n2", "n3"):
        toy.simulation.processes[name].start()
    assert truth_of(body_of(toy.run(ops.put("a", b"3"))))


def test_what_the_store_refuses_is_told() -> None:
    toy = ToyCluster()
    place, read, _ = ops.put("a", b"1")
    outcome = toy.run(ops.Request(place, read, b"\xff\x00\x00"))
    assert isinstance(outcome, RefusedError)
    assert "no operation of the DHT" in str(outcome)


def test_too_many_open_operations_are_refused_at_once() -> None:
    toy = ToyCluster()
    toy.store.mood = lambda node, execute: None
    for _ in range(OPEN_MAX):
        toy.begin(ops.get("a"), deadline_s=1.0)
    assert isinstance(toy.run(ops.get("a"), deadline_s=0.2), UnavailableError)
    toy.simulation.run_for(2.0)
    assert toy.client.open_operations == 0
    toy.store.mood = serve
    assert value_of(body_of(toy.run(ops.get("a")))) is None


def test_a_full_window_is_served_without_sending_anything_twice() -> None:
    toy = ToyCluster()
    outcomes = [toy.begin(ops.put(f"k{k}", b"v" * 100)) for k in range(OPEN_MAX)]
    toy.simulation.run_for(3.0)
    assert all(truth_of(body_of(one)) for (one,) in outcomes)
    assert len(toy.store.heard) == OPEN_MAX


def test_operations_wait_for_a_node_that_works_as_fast_as_it_can() -> None:
    toy = ToyCluster()
    toy.store.delay_s = 0.3
    outcomes = [toy.begin(ops.put(f"k{k}", b"v")) for k in range(OPEN_MAX)]
    toy.simulation.run_for(4.0)
    assert all(truth_of(body_of(one)) for (one,) in outcomes)
    assert len(toy.store.heard) == OPEN_MAX
    assert toy.store.under_way_max == SENT_MAX


def test_stale_reads_are_labelled_and_need_no_primary() -> None:
    toy = ToyCluster()
    toy.run(ops.put("a", b"1"))
    toy.store.primaries = [0] * SLOTS
    assert toy.run(ops.get("a", stale=True)) == Answer(b"\x01" + b"1", stale=True)


def test_stopping_ends_what_is_open() -> None:
    toy = ToyCluster()
    toy.run(ops.put("a", b"1"))
    toy.store.mood = lambda node, execute: None
    read, command = toy.begin(ops.get("a")), toy.begin(ops.put("a", b"2"))
    toy.simulation.run_for(0.1)
    toy.simulation.processes["client"].stop()
    toy.simulation.run_for(0.1)
    assert isinstance(read[0], UnavailableError)
    assert isinstance(command[0], OutcomeUnknownError)


# Sessions.


def test_the_session_is_dated_by_the_cluster_and_renewed_every_hour() -> None:
    toy = ToyCluster()
    toy.simulation.processes["client"].skew(1e6)
    toy.run(ops.put("a", b"1"))
    now_s = toy.node("n1").world.wall_us() // 1_000_000
    first = toy.store.heard[-1][1].session
    assert abs(opened_s(first) - now_s) <= 1
    toy.simulation.run_for(SESSION_S / 2)
    toy.run(ops.put("a", b"2"))
    assert toy.store.heard[-1][1].session == first
    toy.simulation.run_for(SESSION_S / 2)
    toy.run(ops.put("a", b"3"))
    second = toy.store.heard[-1][1].session
    assert abs(opened_s(second) - opened_s(first) - SESSION_S) <= 2


def expire_sessions(toy: ToyCluster) -> None:
    horizon_s = toy.node("n1").world.wall_us() // 1_000_000
    for state in toy.store.states:
        state.apply(payload.encode_expire(horizon_s))


def test_an_expired_session_is_renewed_if_nothing_can_have_happened() -> None:
    toy = ToyCluster()
    toy.run(ops.put("a", b"1"))
    toy.simulation.run_for(10.0)
    expire_sessions(toy)
    assert value_of(body_of(toy.run(ops.put_and_retrieve("a", b"2")))) == b"1"
    assert len({execute.session for _, execute in toy.store.heard}) == 2


def test_an_expired_session_is_not_renewed_after_a_lost_answer() -> None:
    toy = ToyCluster()
    toy.run(ops.put("a", b"1"))
    toy.simulation.run_for(10.0)

    def execute_and_expire(node: ToyNode, execute: Execute) -> Status | None:
        toy.store.apply(execute)
        expire_sessions(toy)
        toy.store.mood = serve
        return None

    toy.store.mood = execute_and_expire
    assert isinstance(toy.run(ops.put_and_retrieve("a", b"2")), OutcomeUnknownError)


def test_clients_that_drew_the_same_session_do_not_take_each_others_results() -> None:
    toy = ToyCluster()
    toy.run(ops.put("a", b"1"))
    mine = toy.store.heard[-1][1]
    ahead = mine.number + 1000
    body = ops.put("a", b"theirs").body
    toy.store.states[mine.slot].apply(
        payload.encode_command(mine.session, ahead, ahead, mine.service, body)
    )
    assert isinstance(toy.run(ops.put("a", b"2")), OutcomeUnknownError)
    assert value_of(body_of(toy.run(ops.put_and_retrieve("a", b"3")))) == b"theirs"


# Links.


def test_connecting_waits_until_the_slots_are_known() -> None:
    toy = ToyCluster()
    toy.store.knows_slots = False
    told: list[SwellError | None] = []
    toy.client.connect(5.0, told.append)
    outcomes = toy.begin(ops.put("a", b"1"))
    toy.simulation.run_for(2.0)
    assert told == outcomes == []
    toy.store.knows_slots = True
    toy.simulation.run_for(1.0)
    assert told == [None]
    assert truth_of(body_of(outcomes[0]))


def test_connecting_ends_by_its_deadline() -> None:
    toy = ToyCluster()
    toy.store.knows_slots = False
    told: list[SwellError | None] = []
    toy.client.connect(1.0, told.append)
    toy.simulation.run_for(1.1)
    assert isinstance(told[0], UnavailableError)


def test_connecting_fails_at_once_when_no_node_is_there() -> None:
    toy = ToyCluster(seeds=("n1", "n2"))
    for name in ("n1", "n2"):
        toy.simulation.processes[name].crash()
    told: list[SwellError | None] = []
    toy.client.connect(60.0, told.append)
    toy.simulation.run_for(1.0)
    assert isinstance(told[0], UnavailableError)
    assert "no node answers" in str(told[0])


def test_a_node_of_another_cluster_refuses() -> None:
    toy = ToyCluster(cluster="another")
    told: list[SwellError | None] = []
    toy.client.connect(5.0, told.append)
    toy.simulation.run_for(1.0)
    assert isinstance(told[0], RefusedError)
    assert told[0].code == "wrong-cluster"


def test_a_paused_first_node_does_not_keep_the_client_from_connecting() -> None:
    toy = ToyCluster()
    toy.store.primaries = [2] * SLOTS
    toy.simulation.processes["n1"].pause()
    told: list[SwellError | None] = []
    toy.client.connect(5.0, told.append)
    toy.simulation.run_for(3.0)
    assert told == [None]


def test_a_link_to_a_node_that_lost_power_before_it_said_hello_is_given_up() -> None:
    toy = ToyCluster()
    toy.run(ops.put("a", b"1"))
    peers, victim = toy.client.peers, toy.simulation.processes["n2"]
    peer = next(peer for peer in peers._order if peer.address.host == "n2")
    assert peers.dial(peer, 0.0)
    assert peer.session is not None
    link = peer.session.link
    assert isinstance(link, SimLink)
    while link.state != UP:
        toy.simulation.run_for(0.000_05)
    victim.pause()
    toy.simulation.run_for(0.5)  # its kernel has taken our hello, and nobody answers
    victim.crash(power=True)
    victim.start()
    toy.simulation.run_for(OPEN_S_MAX)
    assert peer.session is None
    assert peers.dial(peer, 0.0)
    toy.simulation.run_for(0.5)
    assert peer.open


def test_idle_links_are_closed_but_one() -> None:
    toy = ToyCluster()
    toy.store.primaries = [1 + slot % 3 for slot in range(SLOTS)]
    for slot in range(SLOTS):
        toy.run(ops.put(key_of_slot(slot), b"v"))
    assert [toy.node(name).clients for name in ("n1", "n2", "n3")] == [1, 1, 1]
    toy.simulation.run_for(100.0)
    assert sum(toy.node(name).clients for name in ("n1", "n2", "n3")) == 1
    for slot in range(SLOTS):
        assert value_of(body_of(toy.run(ops.get(key_of_slot(slot))))) == b"v"
    what = [notice.what for notice in toy.notices]
    assert what.count("connected") == 5
    assert what.count("disconnected") == 0
