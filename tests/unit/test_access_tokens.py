"""A node's copy of the tokens against a registry that answers when a test wants it to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from swell.access import tokens as module
from swell.access.grants import Right, parse_grant
from swell.access.token import ENTROPY_BYTES, TokenRecord, decode_record, draw, encode_record
from swell.access.tokens import KEPT_S, PREFIX, Tokens
from swell.directory.registry import Change, Entry, Outcome, Registry, RegistrySet
from swell.errors import RefusedError, UnavailableError

TOKEN = draw(bytes(range(ENTROPY_BYTES)))
NOW_S = 1_000_000_000
RECORD = TokenRecord(TOKEN.hash, (parse_grant("shop", Right.READ),), NOW_S + 60, "", NOW_S)


class ToyRegistry:
    """The real state; answers and news wait until they are let go."""

    def __init__(self) -> None:
        self.state = Registry()
        self.away = False
        self.reads: list[Callable[[], None]] = []
        self.tell: Callable[[dict[str, Entry | None]], None] | None = None

    def read(self, keys: Sequence[str], done: Callable[[dict[str, Entry] | None], None]) -> None:
        def answer() -> None:
            entries = {key: self.state.get(key) for key in keys}
            found = {key: entry for key, entry in entries.items() if entry is not None}
            done(None if self.away else found)

        self.reads.append(answer)

    def change(
        self, changes: Sequence[Change], done: Callable[[list[Outcome] | None], None]
    ) -> None:
        done(None if self.away else self.state.apply(RegistrySet(tuple(changes))))

    def watch(self, prefix: str, on_change: Callable[[dict[str, Entry | None]], None]) -> None:
        assert prefix == PREFIX
        assert self.tell is None
        self.tell = on_change

    def put(self, id: str, record: TokenRecord | bytes) -> Entry:
        value = record if isinstance(record, bytes) else encode_record(record)
        held = self.state.get(PREFIX + id)
        change = Change(PREFIX + id, held.version if held is not None else 0, value)
        (outcome,) = self.state.apply(RegistrySet((change,)))
        assert outcome.entry is not None
        return outcome.entry

    def complete(self) -> None:
        assert self.tell is not None
        self.tell(dict(self.state.read(PREFIX)))


class Toy:
    """A world of which tokens need the clock only."""

    def wall_us(self) -> int:
        return NOW_S * 1_000_000


@pytest.fixture(name="registry")
def make_registry() -> ToyRegistry:
    return ToyRegistry()


@pytest.fixture(name="tokens")
def make_tokens(registry: ToyRegistry) -> Tokens:
    return Tokens(Toy(), registry, Counter())  # type: ignore[arg-type]


def test_nothing_is_watched_before_the_first_token(registry: ToyRegistry, tokens: Tokens) -> None:
    assert registry.tell is None
    tokens.find(TOKEN.id, lambda found: None)
    assert registry.tell is not None


def test_news_that_come_late_do_not_undo_what_was_read(
    registry: ToyRegistry, tokens: Tokens
) -> None:
    old = registry.put(TOKEN.id, RECORD)
    registry.put(TOKEN.id, msgspec.structs.replace(RECORD, revoked_s=NOW_S))
    found: list[Any] = []
    tokens.find(TOKEN.id, found.append)
    registry.reads.pop()()
    assert found[0].revoked_s
    changed: list[str] = []
    tokens.on_changed = changed.extend
    assert registry.tell is not None
    registry.tell({PREFIX + TOKEN.id: old})
    held = tokens.get(TOKEN.id)
    assert held is not None
    assert held.revoked_s
    assert changed == []


def test_what_the_watch_brings(registry: ToyRegistry, tokens: Tokens) -> None:
    tokens.find(TOKEN.id, lambda found: None)
    changed: list[str] = []
    tokens.on_changed = changed.extend
    registry.put(TOKEN.id, RECORD)
    registry.complete()
    assert tokens.get(TOKEN.id) == RECORD
    registry.put(TOKEN.id, b"damaged")
    registry.complete()
    assert tokens.get(TOKEN.id) is None  # nobody gets in by what cannot be read
    assert registry.tell is not None
    registry.put(TOKEN.id, RECORD)
    registry.complete()
    registry.tell({PREFIX + TOKEN.id: None})
    assert tokens.get(TOKEN.id) is None
    assert changed == [TOKEN.id] * 4


def test_unknown_ids_are_looked_up_within_bounds(
    registry: ToyRegistry, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READS_MAX", 3)
    found: list[Any] = []
    for k in range(5):
        tokens.find(draw(bytes([k] * ENTROPY_BYTES)).id, found.append)
    assert len(registry.reads) == 3
    assert [type(answer) for answer in found] == [UnavailableError] * 2
    registry.away = True
    for answer in registry.reads:
        answer()
    assert [type(answer) for answer in found] == [UnavailableError] * 5
    tokens.find(TOKEN.id, found.append)  # room again
    assert len(registry.reads) == 4


def test_creation_waits_for_the_copy_and_deletes_what_is_long_over(
    registry: ToyRegistry, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOKENS_MAX", 3)
    for k, age_s in enumerate((KEPT_S + 1, KEPT_S - 1)):
        over = msgspec.structs.replace(RECORD, expires_s=NOW_S - age_s)
        registry.put(draw(bytes([k] * ENTROPY_BYTES)).id, over)
    made: list[Any] = []
    tokens.create(TOKEN.id, RECORD, made.append)
    assert made == []
    registry.complete()
    assert made == [RECORD]
    kept = {decode_record(e.value).expires_s for e in registry.state.read(PREFIX).values()}
    assert kept == {RECORD.expires_s, NOW_S - KEPT_S + 1}
    for k in (8, 9):
        tokens.create(draw(bytes([k] * ENTROPY_BYTES)).id, RECORD, made.append)
    assert made[1] == RECORD
    assert isinstance(made[2], RefusedError)


def test_a_silent_directory(registry: ToyRegistry, tokens: Tokens) -> None:
    registry.put(TOKEN.id, RECORD)
    outcomes: list[Any] = []
    tokens.revoke(TOKEN.id, outcomes.append)
    registry.away = True
    registry.reads.pop()()
    tokens.all(outcomes.append)
    registry.complete()
    tokens.create(draw(bytes(ENTROPY_BYTES)).id, RECORD, outcomes.append)
    assert [type(outcome) for outcome in outcomes] == [UnavailableError, dict, UnavailableError]
    held = tokens.get(TOKEN.id)
    assert held is not None
    assert not held.revoked_s
