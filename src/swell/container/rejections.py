"""What the application of a container refuses of one feed, and whether the primary knows.

A rejection goes on the container's own link, receipts go by relays and may be faster. A primary
that hears that a step is applied counts those before it as well. So nothing that ends at or behind
a rejected step is said to be applied until the node that serves the feed is known to have the
rejection: links are ordered, and the answer to whatever was asked behind it on the same link proves
that (`swell.container.renewing`). A node that is asked to serve the feed knows nothing, whatever it
was told before.
"""

from __future__ import annotations

from math import inf

import msgspec

from swell.config.messages import Rejected

REFUSED_MAX = 1024
"""Configurations that are refused, and rejections that are not known to be heard; the oldest are
then forgotten."""


class Refused(msgspec.Struct, eq=False):
    """A version that the application refuses. `floor`: up to this step nothing of the name was
    refused, however many versions were since. `sealed_us`: when the burst that brought it was
    sealed, by the primary's clock; None if an earlier life had it."""

    version: int
    floor: int
    message: Rejected
    sealed_us: int | None = None
    said: int = 0
    """The how manieth it was of all that were said; 0: it has to be said."""


class Rejections:
    """Of one feed. `current`: what is refused at present, by name. `secret`: what the node that
    serves the feed has given for proofs."""

    __slots__ = ("_first_step", "_unheard", "current", "said", "secret")

    def __init__(self) -> None:
        self.current: dict[str, Refused] = {}
        self.secret = b""
        self.said = 0
        """How many were said, on any link."""
        self._unheard: dict[tuple[int, str], Refused] = {}
        """Those that the node is not known to have, by step and name; also some that the
        application has taken a later version for."""
        self._first_step: float = inf
        """The first of their steps."""

    @property
    def unheard(self) -> bool:
        return bool(self._unheard)

    @property
    def floor(self) -> float:
        """A step up to which nothing is refused at present, nor is to be said."""
        unsaid = (one.floor for one in self._unheard.values() if not one.said)
        return min(min(unsaid, default=inf), min(map(_floor, self.current.values()), default=inf))

    def hides(self, step: int) -> bool:
        """Whether the node may not know yet that something up to a step is refused."""
        return step >= self._first_step

    def hides_from(self, secret: bytes, step: int) -> bool:
        """The same of the node that gave a secret; one that serves no more is told nothing."""
        if step >= self._first_step:
            return True
        return secret != self.secret and any(
            one.message.step <= step for one in self.current.values()
        )

    def add(self, refused: Refused) -> str:
        """The application refuses a version; the name of one that is forgotten for it, or ""."""
        name, step = refused.message.name, refused.message.step
        before = self.current.pop(name, None)
        if before is not None:
            refused.floor = min(refused.floor, before.floor)
        self.current[name] = refused
        self._unheard[step, name] = refused
        self._first_step = min(self._first_step, step)
        if len(self._unheard) > REFUSED_MAX:
            del self._unheard[next(iter(self._unheard))]
            self._look()
        if len(self.current) <= REFUSED_MAX:
            return ""
        oldest = next(iter(self.current))
        del self.current[oldest]
        return oldest

    # Saying them.

    def begin_anew(self) -> None:
        """Whoever serves the feed from here on has to hear everything."""
        for one in self.current.values():
            self._unheard[one.message.step, one.message.name] = one
        for one in self._unheard.values():
            one.said = 0
        self._look()

    def unsaid(self) -> list[Refused]:
        """In the order of their steps: the last one counts as the latest."""
        return [one for _, one in sorted(self._unheard.items()) if not one.said]

    def note_said(self, refused: Refused) -> None:
        self.said += 1
        refused.said = self.said

    def said_since(self, said: int) -> bool:
        """Whether any was said behind the first so many and is not known to be heard."""
        return any(one.said > said for one in self._unheard.values())

    def note_heard(self, said: int, step: int) -> bool:
        """The node, which is at a step, has read all that it was sent when so many had been said;
        True if something is known to be heard by that. What was ahead of it has to be said again:
        it could not know what was meant."""
        before = len(self._unheard)
        for key, one in list(self._unheard.items()):
            if one.said and one.said <= said:
                if one.message.step <= step:
                    del self._unheard[key]
                else:
                    one.said = 0
        self._look()
        return len(self._unheard) < before

    def _look(self) -> None:
        self._first_step = min((step for step, _ in self._unheard), default=inf)


def _floor(refused: Refused) -> int:
    return refused.floor
