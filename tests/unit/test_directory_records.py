"""The directory's records: what a log of them adds up to, whole or compacted."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from swell.directory import records
from swell.directory.records import Admitted, Down, Forgotten, Numbers, Record, State, Up
from tests.unit.overlay_toys import contact

nodes = st.integers(1, 9)
some = st.lists(nodes, max_size=4).map(tuple)
changes = st.lists(
    st.one_of(
        st.builds(
            lambda node, zone, epoch: Admitted(
                contact(node, zone, epoch=epoch), f"u{node}", "", f"pool{zone % 3}"
            ),
            nodes,
            st.integers(1, 5),
            st.integers(1, 3),
        ),
        st.builds(Down, some, st.integers(1, 10**9)),
        st.builds(Up, some),
        st.builds(Forgotten, some),
        st.builds(Numbers, st.integers(1, 20), st.integers(1, 20), st.integers(1, 50)),
    ),
    max_size=30,
)


def described(state: State) -> object:
    return (
        {n: (e.contact, e.uid, e.region, e.down_since_us) for n, e in sorted(state.nodes.items())},
        sorted(state.names.items()),
        {z: (zone.pool, sorted(zone.nodes)) for z, zone in sorted(state.zones.items())},
        (state.next_node, state.next_zone, state.epoch),
        state.view(),
    )


def replayed(log: Sequence[Record]) -> State:
    state = State()
    for record in log:
        state.apply(records.decode(records.encode(record)))
    return state


@given(changes)
def test_a_snapshot_rebuilds_the_state(log: list[Record]) -> None:
    state = replayed(log)
    assert described(replayed(list(state.snapshot()))) == described(state)
    assert records.decode_all(records.encode(list(state.snapshot()))) == list(state.snapshot())


@given(changes)
def test_numbers_are_never_given_out_twice_and_epochs_grow(log: list[Record]) -> None:
    state = State()
    before = (0, 0, 0)
    for record in log:
        state.apply(record)
        after = (state.next_node, state.next_zone, state.epoch)
        assert all(b <= a for b, a in zip(before, after, strict=True))
        assert all(node < state.next_node for node in state.nodes)
        assert all(zone < state.next_zone for zone in state.zones)
        before = after


@given(changes)
def test_zones_hold_exactly_their_nodes(log: list[Record]) -> None:
    state = replayed(log)
    held = {(z, n) for z, zone in state.zones.items() for n in zone.nodes}
    assert held == {(e.contact.zone, n) for n, e in state.nodes.items()}
    assert all(zone.nodes for zone in state.zones.values())
    assert sum(info.size for info in state.view().zones) == sum(
        entry.up for entry in state.nodes.values()
    )
