"""From events to rows of the table: which kind each event is, and which of its fields goes where.

Rows are made by the batch and by the column (`swell.events.arrow`), off the loop: whoever takes an
event only notes when, whose it is, and the numbers of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from swell.events import Event, Started
from swell.events.records import (
    Acknowledged,
    Applied,
    CrashFound,
    LifeBegan,
    LifeEnded,
    Located,
    Published,
    Rejected,
    Relayed,
    Resumed,
    Sent,
    Stored,
    Subscribed,
    Unsubscribed,
)
from swell.events.schema import Kind

NODE_ROLE = "node"


class Life:
    """One life of a process: what all its rows have in common. Compared by identity."""

    __slots__ = ("node", "role", "run", "site", "start", "zone")

    def __init__(
        self,
        run: str,
        node: str,
        start: int,
        site: str | None = None,
        role: str = NODE_ROLE,
        zone: int | None = None,
    ) -> None:
        self.run = run
        self.node = node
        self.start = start
        self.site = site or None
        self.role = role
        self.zone = zone

    def after(self, event: Event) -> Life:
        """The same, as of an event: it may have got its zone, or say what it is."""
        if isinstance(event, Started):
            return Life(self.run, self.node, self.start, self.site, NODE_ROLE, event.zone)
        if isinstance(event, LifeBegan):
            return Life(self.run, self.node, self.start, self.site, event.role, self.zone)
        return self


class Form(NamedTuple):
    """How an event becomes rows. `columns`: column → field. `each`: the column whose field lists a
    value for each of several rows; empty: there is one row."""

    kind: Kind
    columns: dict[str, str]
    each: str = ""


_STEPS = {"application": "application", "first": "first", "sequence": "step", "epoch": "epoch"}
_VERSION = {
    "application": "application",
    "name": "name",
    "sequence": "version",
    "step": "step",
    "digest": "id",
}

FORMS: dict[type[Event], Form] = {
    Started: Form(Kind.START, {"epoch": "epoch"}),
    LifeBegan: Form(Kind.START, {}),
    Resumed: Form(Kind.START, {"application": "application", "name": "name", "step": "step"}),
    LifeEnded: Form(Kind.STOP, {"reason": "reason"}),
    CrashFound: Form(Kind.CRASH_FOUND, {"peer": "peer", "epoch": "epoch"}),
    Located: Form(Kind.COORDINATE, {"coordinate": "coordinate"}),
    Published: Form(
        Kind.PUBLISH,
        {
            "application": "application",
            "name": "names",
            "source": "source",
            "epoch": "epoch",
            "bytes": "bytes",
        },
        each="name",
    ),
    Stored: Form(
        Kind.STORE,
        {
            **_VERSION,
            "first": "version",
            "base": "base",
            "source": "source",
            "epoch": "epoch",
            "bytes": "bytes",
            "sent_at": "stored_us",
            "reason": "reason",
        },
    ),
    Subscribed: Form(
        Kind.SUBSCRIBE,
        {
            "application": "application",
            "name": "names",
            "peer": "peer",
            "step": "step",
            "epoch": "epoch",
        },
        each="name",
    ),
    Unsubscribed: Form(
        Kind.UNSUBSCRIBE,
        {
            "application": "application",
            "name": "names",
            "peer": "peer",
            "epoch": "epoch",
            "reason": "reason",
        },
        each="name",
    ),
    Sent: Form(Kind.DELIVER, {**_STEPS, "peer": "peers", "bytes": "bytes"}, each="peer"),
    Relayed: Form(Kind.RELAY, {**_STEPS, "peer": "peers", "bytes": "bytes"}, each="peer"),
    Applied: Form(
        Kind.APPLY,
        {
            **{column: f"span.{source}" for column, source in _VERSION.items()},
            "first": "span.first",
            "base": "span.base",
            "epoch": "span.epoch",
            "bytes": "span.bytes",
            "sent_at": "span.sealed_us",
            "peer": "peer",
        },
    ),
    Rejected: Form(
        Kind.REJECT,
        {**_VERSION, "first": "version", "sent_at": "sealed_us", "reason": "reason"},
    ),
    Acknowledged: Form(Kind.ACK, {**_STEPS, "name": "name", "peer": "peers"}, each="peer"),
}
"""Events that are not here are not written down."""

pack_numbers = Struct("=qqq").pack
"""The numbers of one event, as `Pile.numbers` has them."""

ROW_BITS = 40
"""Whose an event is and the number of its first row are one number: the first above these bits."""


class Pile:
    """Events of one type. What they have in numbers is packed: an event then costs no object of
    its own, and whoever makes rows of many has them as columns at once."""

    __slots__ = ("events", "lives", "numbers")

    def __init__(self, lives: Sequence[Life]) -> None:
        self.lives = lives
        """Of the whole collection, by their numbers."""
        self.numbers = bytearray()
        """For each event: whose it is with the number of its first row, wall and monotonic clock
        in ns."""
        self.events: list[Event] = []


Piles = dict[type[Event], Pile]


class _Sort:
    """One type of events: its pile, and what is peculiar about its rows."""

    __slots__ = ("listed", "pile", "tells")

    def __init__(self, event: type[Event], form: Form, lives: Sequence[Life]) -> None:
        self.pile = Pile(lives)
        self.listed = form.columns[form.each] if form.each else ""
        """The field that lists a value per row; empty: there is one row."""
        self.tells = event in (Started, LifeBegan)
        """Whether it says something about its life."""


class Collection:
    """Events on their way to becoming rows. `full` gets a pile when it has `events_max`."""

    def __init__(self, events_max: int, full: Callable[[Piles], None]) -> None:
        self.lives: list[Life] = []
        self.sorts = {event: _Sort(event, form, self.lives) for event, form in FORMS.items()}
        self.events_max = events_max
        self.full = full
        self.fresh: list[tuple[Recorder, int, int, Event]] = []
        """Taken, but not sorted yet: what whoever takes them would have given to `Recorder.take`.
        In the midst of other work every step costs several times what it does here."""

    def number(self, life: Life) -> int:
        """By which events say that they are of this life."""
        self.lives.append(life)
        return len(self.lives) - 1

    def sort(self) -> None:
        """What is fresh, in the order in which it came."""
        fresh = self.fresh.copy()
        self.fresh.clear()  # first: none is taken twice, whatever happens below
        for recorder, wall_ns, mono_ns, event in fresh:
            recorder.take(wall_ns, mono_ns, event)

    def taken(self) -> Piles:
        """All there is; what comes from now on is apart from it."""
        self.sort()
        return {
            event: self._emptied(sort) for event, sort in self.sorts.items() if sort.pile.events
        }

    def on_full(self, event: type[Event]) -> None:
        self.full({event: self._emptied(self.sorts[event])})

    def _emptied(self, sort: _Sort) -> Pile:
        pile, sort.pile = sort.pile, Pile(self.lives)
        return pile


class Recorder:
    """Takes the events of one life and numbers its rows. A number that no file has was lost."""

    __slots__ = ("_collection", "_next", "_sorts", "life")

    def __init__(self, collection: Collection, life: Life) -> None:
        self.life = life
        self._collection = collection
        self._sorts = collection.sorts
        self._next = collection.number(life) << ROW_BITS | 1
        """Whose it is and the number of the next row."""

    def take(self, wall_ns: int, mono_ns: int, event: Event) -> None:
        sort = self._sorts.get(type(event))
        if sort is None:
            return
        if sort.tells:
            self.life = self.life.after(event)
            row = self._next & ((1 << ROW_BITS) - 1)
            self._next = self._collection.number(self.life) << ROW_BITS | row
        first = self._next
        self._next = first + (len(getattr(event, sort.listed)) if sort.listed else 1)
        pile = sort.pile
        pile.numbers += pack_numbers(first, wall_ns, mono_ns)
        events = pile.events
        events.append(event)
        if len(events) >= self._collection.events_max:
            self._collection.on_full(type(event))


def event_count(piles: Piles) -> int:
    return sum(len(pile.events) for pile in piles.values())


def row_count(piles: Piles) -> int:
    total = 0
    for event, pile in piles.items():
        form = FORMS[event]
        if form.each:
            listed = attrgetter(form.columns[form.each])
            total += sum(map(len, map(listed, pile.events)))
        else:
            total += len(pile.events)
    return total
