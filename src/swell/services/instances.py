"""Instances of a service, and the document that lists them (RIP-23).

The list of a service is its configuration `@instances`: sorted lines `id TAB json`
(`swell.config.lines`), so that a change of one instance is a delta of one line wherever it goes.
A line that is no instance is left out and counted. Lists never change: `following` makes the
next one and says what it adds, removes and changes; it looks at the lines that differ.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from swell.config.edits import Line, Lines
from swell.config.lines import KEY_LENGTH_MAX, check_key
from swell.errors import ConfigurationError, InvalidNameError

if TYPE_CHECKING:
    from random import Random

SESSION, NONE = "session", "none"

PROTECTED = "!protected"
"""Key of the line that marks a protected list; before all ids, which do not begin like it."""

TTL_S = 15.0
TTL_S_MIN = 1.0
TTL_S_MAX = 86_400.0
WEIGHT_MAX = 1_000_000.0
TEXT_BYTES_MAX = 8 * 1024
"""Of an instance as JSON: its metadata are for choosing it, not for configuring it."""

_CHECK = re.compile(r"session|tcp|none|http:/[!-~]{0,254}")
_LEASE = r"^[0-9a-f]{16}$"
_FIRST = '{"lease":"'


class Instance(msgspec.Struct, frozen=True, omit_defaults=True):
    """One instance. The lease comes first in its text: it tells one registration from another."""

    lease: Annotated[str, Meta(pattern=_LEASE)]
    host: Annotated[str, Meta(min_length=1, max_length=253)]
    port: Annotated[int, Meta(ge=0, le=65_535)]
    since: int = 0
    """When it became what it is, healthy or not: seconds by the wall clock."""
    weight: Annotated[float, Meta(ge=0.0, le=WEIGHT_MAX)] = 1.0
    check: str = SESSION
    ttl_s: Annotated[float, Meta(ge=TTL_S_MIN, le=TTL_S_MAX)] = TTL_S
    healthy: bool = True
    metadata: dict[str, str] = {}
    id: str = ""

    @property
    def text(self) -> str:
        """What its line says."""
        return _encode(replace(self, id="")).decode()

    @property
    def mark(self) -> str:
        """How the text of every line of this registration begins."""
        return f'{_FIRST}{self.lease}"'

    @property
    def is_probed(self) -> bool:
        """Whether nodes look at it themselves."""
        return self.check not in (SESSION, NONE)

    def line(self, only: str | None = None) -> Line:
        return Line(self.id, self.text, only)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Instance).decode


class NoInstanceError(ConfigurationError):
    """Something that cannot be an instance; the sentence says why."""


def read(id: str, text: bytes) -> Instance:
    """The instance that a line names, if all it says makes sense; `NoInstanceError`."""
    try:
        check_id(id)
        instance = replace(_decode(text), id=id)
    except (msgspec.DecodeError, InvalidNameError, UnicodeDecodeError, RecursionError) as error:
        raise NoInstanceError(f"{id!a} is no instance: {error}") from None
    if len(text) > TEXT_BYTES_MAX:
        raise NoInstanceError(
            f"instance {id} takes {len(text)} bytes, allowed are {TEXT_BYTES_MAX}:"
            " use less metadata"
        )
    if _CHECK.fullmatch(instance.check) is None:
        raise NoInstanceError(
            f"{instance.check!a} is no health check: use session, tcp, http:/path or none"
        )
    if instance.is_probed and not instance.port:
        raise NoInstanceError(f"{id} has no port: a check by {instance.check} needs one")
    if not text.startswith(_FIRST.encode()):
        raise NoInstanceError(f"the text of {id} does not begin with its lease")
    return instance


def checked(instance: Instance) -> Instance:
    """The instance as its line will say it; `NoInstanceError`."""
    return read(instance.id, instance.text.encode())


def check_id(id: str) -> str:
    """The id if an instance may have it, else `InvalidNameError`."""
    if id.startswith("!"):
        raise InvalidNameError(f"the id {id[:KEY_LENGTH_MAX]!a} begins with '!': leave it out")
    return check_key(id)


def check_lines(edit: Lines) -> None:
    """Refuse what a client may not write into a list: anything but instances."""
    for line in edit.lines:
        check_id(line.key)
        if line.text is not None:
            read(line.key, line.text.encode())


class Change(NamedTuple):
    """What one list has that another had not; `changed` as they are now, `removed` as they were."""

    added: tuple[Instance, ...] = ()
    removed: tuple[Instance, ...] = ()
    changed: tuple[Instance, ...] = ()

    def __bool__(self) -> bool:
        return any(self)


class Instances:
    """The list of a service at one moment."""

    __slots__ = ("_choice", "by_id", "document", "healthy", "protected", "unreadable")

    def __init__(self, document: bytes, by_id: dict[str, Instance], protected: bool) -> None:
        self.document = document
        self.by_id = by_id
        self.protected = protected
        """Too few are healthy: all may be used."""
        self.healthy = 0
        """How many are."""
        self.unreadable = 0
        self._choice: tuple[list[Instance], list[float]] | None = None

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Instance]:
        """In the order of their ids."""
        return iter([self.by_id[id] for id in sorted(self.by_id)])

    @property
    def usable(self) -> list[Instance]:
        """Those to send something to: the healthy ones, all if the list is protected."""
        return [one for one in self if (one.healthy or self.protected) and one.weight > 0.0]

    def pick(self, rng: Random) -> Instance | None:
        """One that is usable, by weight; None if none is."""
        if self._choice is None:
            usable = self.usable
            self._choice = usable, list(accumulate(one.weight for one in usable))
        usable, sums = self._choice
        if not usable:
            return None
        return usable[min(bisect(sums, rng.random() * sums[-1]), len(usable) - 1)]


EMPTY = Instances(b"", {}, False)


def parse(document: bytes) -> Instances:
    """The list that a document is."""
    return following(EMPTY, document)[0]


def following(before: Instances, document: bytes) -> tuple[Instances, Change]:
    """The list that comes behind another, and what has changed."""
    if document == before.document:
        return before, Change()
    old, new = _difference(before.document, document)
    made = Instances(document, dict(before.by_id), before.protected)
    made.unreadable = before.unreadable
    was = {one.id: one for one in _read_lines(made, old, -1)}
    made.protected = before.protected and not _is_marked(old)
    now = {one.id: one for one in _read_lines(made, new, 1)}
    made.protected = made.protected or _is_marked(new)
    for id in was:
        del made.by_id[id]
    made.by_id.update(now)
    made.healthy = before.healthy + _healthy(now.values()) - _healthy(was.values())
    return made, Change(
        tuple(one for id, one in now.items() if id not in was),
        tuple(one for id, one in was.items() if id not in now),
        tuple(one for id, one in now.items() if id in was and was[id] != one),
    )


def _healthy(instances: Iterable[Instance]) -> int:
    return sum(1 for one in instances if one.healthy)


def _is_marked(lines: bytes) -> bool:
    return lines.startswith(PROTECTED.encode() + b"\t")


def _read_lines(made: Instances, lines: bytes, count: int) -> Iterator[Instance]:
    for line in lines.split(b"\n")[:-1]:
        key, _, text = line.partition(b"\t")
        if key == PROTECTED.encode():
            continue
        try:
            yield read(key.decode(), text)
        except (NoInstanceError, UnicodeDecodeError):
            made.unreadable += count


def _difference(old: bytes, new: bytes) -> tuple[bytes, bytes]:
    """The whole lines that differ, as they were and as they are."""
    shorter = min(len(old), len(new))
    start = old.rfind(b"\n", 0, _common(old, new, shorter)) + 1
    tail = _common_tail(old, new, shorter - start)
    # What both end with may begin in the middle of a line.
    end = old.find(b"\n", len(old) - tail)
    tail = len(old) - 1 - end if end >= 0 else 0
    return old[start : len(old) - tail], new[start : len(new) - tail]


def _common(old: bytes, new: bytes, high: int) -> int:
    """How many bytes, up to `high`, both begin with."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _common_tail(old: bytes, new: bytes, high: int) -> int:
    """How many bytes, up to `high`, both end with."""
    low, ends = 0, (len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        if old[ends[0] - middle : ends[0] - low] == new[ends[1] - middle : ends[1] - low]:
            low = middle
        else:
            high = middle - 1
    return low
