"""The changes of a burst, made ready once per process.

Whatever does not depend on the container is done here and kept with the burst: splices are decoded
and a long value becomes a tree. The id of a delta is computed from its base, its kind and its
bytes; a container takes a delta only if the base is its own version, so an id that is right for
the base is right for everyone who may take it.
"""

from __future__ import annotations

import msgspec

from swell.config.bursts import Burst, Change, Shared
from swell.config.content import Content
from swell.config.gone import Range
from swell.config.splices import Delta, apply_to, decode
from swell.config.versions import Kind, version_id
from swell.container.documents import PLAIN_BYTES_MAX, Document, kept_form
from swell.errors import WireError
from swell.events.records import Applied, Span

WHOLE, DELTA, DELETE, FETCH, GONE = (int(kind) for kind in Kind)


class Ready(msgspec.Struct, gc=False):
    """A change, decoded. A delta of one splice has it in `offset`, `end` and `data`."""

    name: str
    kind: int
    version: int
    base: bytes
    id: bytes
    content: bytes | Content
    splices: Delta
    single: bool
    offset: int
    end: int
    data: bytes
    base_bytes_max: int
    """Longest base for which what one splice makes is kept as plain bytes."""
    change: Change

    def spliced(self, content: bytes | Content) -> bytes | Content:
        """What this delta makes of a value; `BadDeltaError` if it does not fit."""
        if isinstance(content, bytes):
            made = apply_to(content, self.splices)
            return made if len(made) <= PLAIN_BYTES_MAX else Content.of(made)
        return content.splice(self.splices)


ReadyStep = tuple[int, tuple[Ready, ...]]
"""Its number and its changes."""


class Spanned(msgspec.Struct, gc=False):
    """What a burst does to one configuration: its changes with their steps, and as what they are
    written down."""

    name: str
    changes: list[tuple[int, Ready]]
    base: bytes
    """Before the first of them; empty if they leave versions out."""
    id: bytes
    """After the last of them."""
    spans: tuple[Span, ...]
    written: dict[str, tuple[Applied, ...]] = {}
    """What was asked of `applied` before."""

    def is_new_to(self, before: Document) -> bool:
        """Whether not even the first change was there."""
        number, change = self.changes[0]
        return before.step < number and (before.version < change.version or before.deleted)

    def applied(self, peer: str) -> tuple[Applied, ...]:
        """What everybody writes down whom this peer brings it to."""
        known = self.written.get(peer)
        if known is None:
            known = self.written[peer] = tuple(Applied(span, peer) for span in self.spans)
        return known


class ReadyBurst(msgspec.Struct, gc=False):
    """`fetches`: those of its changes that have to be fetched first, with their steps. `ranges`:
    between which names everything up to a step is gone."""

    steps: tuple[ReadyStep, ...]
    fetches: tuple[tuple[int, Ready], ...]
    ranges: tuple[Range, ...]
    spans: tuple[Spanned, ...] | None = None
    """By configuration, where somebody writes it down."""
    only: Spanned | None = None
    """If there is but one."""


def has(document: Document, number: int, change: Ready) -> bool:
    """Whether a document is what a change of this step makes, or later."""
    return number <= document.step or (change.version <= document.version and not document.deleted)


_ready: Shared[bytes, tuple[Burst, ReadyBurst]] = Shared()


def ready(burst: Burst) -> ReadyBurst:
    """The steps of a burst; `WireError` if they contradict themselves."""
    known = _ready.get(burst.id)
    if known is not None and known[0] is burst:
        return known[1]
    numbers = [step.number for step in burst.steps]
    if numbers != sorted(set(numbers)) or (
        numbers and not burst.after < numbers[0] <= numbers[-1] <= burst.upto
    ):
        raise WireError("bad-change", "steps out of order")
    steps = tuple(
        (step.number, tuple(_made_ready(one) for one in step.changes if one.kind != GONE))
        for step in burst.steps
    )
    fetches = tuple((n, one) for n, changes in steps for one in changes if one.kind == FETCH)
    made = ReadyBurst(steps, fetches, _ranges(burst))
    _ready.put(burst.id, (burst, made), burst.size)
    return made


def _ranges(burst: Burst) -> tuple[Range, ...]:
    try:
        return tuple(
            Range(one.name, one.data.decode(), step.number)
            for step in burst.steps
            for one in step.changes
            if one.kind == GONE
        )
    except UnicodeDecodeError as error:
        raise WireError("bad-change", str(error)) from None


def _made_ready(change: Change) -> Ready:
    kind, data = change.kind, change.data
    content: bytes | Content = b""
    splices: Delta = ()
    if kind == DELTA:
        splices = decode(data)
    elif kind == WHOLE:
        content = kept_form(data)
    elif kind not in (DELETE, FETCH):
        raise WireError("bad-change", f"kind {kind}")
    if kind == DELTA and version_id(change.base, kind, data) != change.id:
        raise WireError("bad-change", f"{change.name}: the id is not that of the delta")
    single = len(splices) == 1
    offset, length, new = splices[0] if single else (0, 0, b"")
    return Ready(
        change.name,
        kind,
        change.version,
        change.base,
        change.id,
        content,
        splices,
        single,
        offset,
        offset + length,
        new,
        PLAIN_BYTES_MAX - len(new),
        change,
    )
