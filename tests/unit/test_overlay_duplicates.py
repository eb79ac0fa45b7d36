"""Suppression of duplicates, against the naive way of remembering everything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swell.overlay.duplicates import Duplicates, Ledger

WINDOW = 8


class Naive:
    """All sequences ever seen per source and epoch."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, dict[int, None]]] = {}

    def is_new(self, source: int, epoch: int, sequence: int) -> bool:
        known_epoch, seen = self._seen.get(source, (-1, {}))
        if epoch < known_epoch:
            return False
        if epoch > known_epoch:
            seen = {}
            self._seen[source] = (epoch, seen)
        if sequence in seen or sequence <= max(seen, default=0) - WINDOW:
            return False
        seen[sequence] = None
        return True


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 40)), max_size=120))
def test_like_remembering_everything(messages: list[tuple[int, int, int]]) -> None:
    duplicates, naive = Duplicates(WINDOW), Naive()
    for message in messages:
        assert duplicates.is_new(*message) == naive.is_new(*message), message


def test_in_order_out_of_order_and_late() -> None:
    duplicates = Duplicates(WINDOW)
    assert [duplicates.is_new(1, 1, s) for s in (1, 2, 2, 5, 3, 3, 4, 5)] == [
        True, True, False, True, True, False, True, False,
    ]  # fmt: skip
    assert duplicates.is_new(1, 1, 100)
    assert not duplicates.is_new(1, 1, 92), "below the window"
    assert duplicates.is_new(1, 1, 93), "in the window and never seen"
    assert not duplicates.is_new(1, 1, 93)


def test_a_restart_begins_anew_and_the_former_life_is_over() -> None:
    duplicates = Duplicates(WINDOW)
    assert duplicates.is_new(1, 1, 50)
    assert duplicates.is_new(1, 2, 1)
    assert not duplicates.is_new(1, 1, 51)


def test_memory_is_bounded_by_the_number_of_sources() -> None:
    duplicates = Duplicates(WINDOW, sources_max=10)
    for source in range(100):
        assert duplicates.is_new(source, 1, 1)
    assert len(duplicates) == 10
    assert not duplicates.is_new(99, 1, 1)
    assert duplicates.is_new(0, 1, 1), "the oldest was forgotten"


def test_a_ledger_never_gives_out_a_number_twice() -> None:
    ledger = Ledger(WINDOW)
    assert [ledger.next_sequence() for _ in range(3)] == [1, 2, 3]
