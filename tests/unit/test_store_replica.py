"""A replica applies what is committed: at once as the primary, some time as a member."""

from __future__ import annotations

import pytest

from swell.store import entry as entries
from swell.store import payload
from swell.store.messages import Status
from swell.store.replica import KEEP_BYTES_MAX, UNAPPLIED_MAX, Replica
from swell.store.state import SlotState

SERVICE = 1
KEEP = 16


class Tape:
    """Remembers what was applied; what it looked like when."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def apply(self, body: bytes) -> bytes:
        self.bodies.append(body)
        return b"%d" % len(self.bodies)

    def query(self, body: bytes) -> bytes:
        return b"%d" % len(self.bodies)

    def dump(self) -> bytes:
        return b",".join(self.bodies)

    def load(self, data: bytes) -> None:
        self.bodies = data.split(b",") if data else []


class Slot:
    """One replica and the machine in it."""

    def __init__(self) -> None:
        self.tape = Tape()
        self.replica = Replica(7, lambda: SlotState({SERVICE: lambda: self.tape}), KEEP, 0.0)

    def append(self, count: int, size: int = 1) -> None:
        chain = self.replica.chain
        for _ in range(count):
            number = chain.last + 1
            body = b"%d" % number + b"x" * (size - 1)
            data = payload.encode_command(1 << 33, number, number, SERVICE, body)
            chain.append(entries.make(7, 1, number, chain.digest, data))
        self.replica.matched = chain.last


def test_a_member_applies_when_its_state_is_looked_at() -> None:
    slot = Slot()
    slot.append(5)
    slot.replica.learn(3)
    assert slot.replica.commit == 3
    assert slot.tape.bodies == []
    assert slot.replica.state.query(SERVICE, b"") == (Status.DONE, b"3")
    slot.replica.learn(5)
    assert slot.replica.image().commit == 5
    assert len(slot.tape.bodies) == 5


def test_a_member_leaves_no_more_than_so_many_for_later() -> None:
    slot = Slot()
    slot.append(UNAPPLIED_MAX + 1)
    slot.replica.learn(UNAPPLIED_MAX)
    assert slot.tape.bodies == []
    slot.replica.learn(UNAPPLIED_MAX + 1)
    assert len(slot.tape.bodies) == UNAPPLIED_MAX + 1


@pytest.mark.parametrize("learned", [0, 10])
def test_a_primary_gets_every_result_also_of_what_was_left_for_later(learned: int) -> None:
    slot = Slot()
    slot.append(3 * UNAPPLIED_MAX)
    slot.replica.learn(learned)
    results = slot.replica.advance(3 * UNAPPLIED_MAX)
    assert [sequence for sequence, _, _ in results] == list(range(1, 3 * UNAPPLIED_MAX + 1))
    assert {status for _, status, _ in results} == {Status.DONE}
    assert slot.replica.advance(3 * UNAPPLIED_MAX) == []


def test_what_is_not_applied_is_never_trimmed() -> None:
    slot = Slot()
    slot.append(UNAPPLIED_MAX)
    slot.replica.learn(UNAPPLIED_MAX)
    slot.replica.trim(UNAPPLIED_MAX)
    assert slot.replica.chain.base == UNAPPLIED_MAX - KEEP
    assert len(slot.tape.bodies) == UNAPPLIED_MAX - KEEP
    assert slot.replica.state.query(SERVICE, b"") == (Status.DONE, b"%d" % UNAPPLIED_MAX)


def test_long_entries_are_applied_before_they_are_shed() -> None:
    slot = Slot()
    slot.append(3, KEEP_BYTES_MAX // 2)
    slot.replica.learn(3)
    slot.replica.trim(3)
    assert slot.replica.chain.base > 0
    assert len(slot.tape.bodies) == 3


def test_forgetting_forgets_what_was_left_for_later_too() -> None:
    slot = Slot()
    slot.append(5)
    slot.replica.learn(5)
    slot.replica.forget()
    assert slot.replica.state.query(SERVICE, b"") == (Status.DONE, b"0")
