"""What a container says of the bursts of one feed, and when (RIP-10, RIP-14).

Three marks only grow: what is here (`Feed.at`), what is *durable* (the same without a snapshot),
and what is *applied*: judged by the application, or at once if nobody is asked. A burst is
delivered when the durable mark has reached its last step, and applied when the applied mark has and
the application refused nothing of it. So a burst that comes again gets its receipt again, and one
whose steps came by another way gets it too: it says what is true.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import NamedTuple, Protocol

from swell.config.bursts import Burst
from swell.config.messages import Level, Rejected
from swell.config.proofs import proof
from swell.container.documents import Document, Refusal, Update
from swell.container.feed import Feed

WAITING_MAX = 256
"""Bursts of one feed that have not reached their last level."""

UNJUDGED_MAX = 4096
"""Changes that the application has not judged; the oldest are then taken as never judged."""

REFUSED_MAX = 1024
REASON_LENGTH_MAX = 1024

DELIVERED, APPLIED = int(Level.DELIVERED), int(Level.APPLIED)


class Target(Protocol):
    """Whoever a receipt goes to: the link a burst came on, or what a relay says of its branch."""

    def settle(self, level: int, proof: bytes) -> None: ...


class _Waiting:
    __slots__ = ("burst", "secret", "target", "told")

    def __init__(self, burst: Burst, secret: bytes, target: Target, told: int) -> None:
        self.burst = burst
        self.secret = secret
        self.target = target
        self.told = told


class _Unjudged(NamedTuple):
    """`floor`: where the burst begins that brought it."""

    floor: int
    step: int
    name: str
    version: int
    document: Document


class _Refused(NamedTuple):
    """What the application refuses at present. `floor`: up to this step nothing of the name was
    refused, however many versions were since."""

    version: int
    floor: int
    message: Rejected


class Receipts:
    """Of one feed. `automatic`: what is here counts as applied."""

    __slots__ = (
        "_accepted", "_counters", "_judged", "_refused", "_rejected", "_unjudged", "_waiting",
        "applied", "automatic", "durable", "feed",
    )  # fmt: skip

    def __init__(self, feed: Feed, automatic: bool, counters: Counter[str]) -> None:
        self.feed = feed
        self.automatic = automatic
        self.durable = feed.at
        self.applied = feed.at
        self._rejected: dict[str, _Refused] = {}
        """By name."""
        self._accepted: dict[str, Document] = {}
        """The last version of each name that the application has applied, unless a deletion."""
        self._waiting: deque[_Waiting] = deque()
        self._unjudged: deque[_Unjudged] = deque()
        self._judged: dict[str, int] = {}
        """The last judged version of names; forgotten when nothing waits to be judged."""
        self._refused: dict[int, None] = {}
        """Steps of which something was refused, or never judged."""
        self._counters = counters

    def expect(self, burst: Burst, secret: bytes, target: Target) -> None:
        """Give the receipts for a burst to `target`, now and when more can be said."""
        level = self._level(burst)
        if level:
            target.settle(level, proof(secret, burst.id, level))
        if level == APPLIED or (level and burst.upto <= self.applied):
            return  # all is said; of the second kind something was refused
        self._waiting.append(_Waiting(burst, secret, target, level))
        if len(self._waiting) > WAITING_MAX:
            self._waiting.popleft()
            self._counters["receipts-dropped"] += 1

    def on_durable(self, step: int) -> None:
        """Everything up to this step outlives a crash."""
        self.durable = max(self.durable, step)
        self._advance()

    def _level(self, burst: Burst) -> int:
        if burst.upto > min(self.durable, self.feed.at):
            return 0
        if burst.upto > self.applied or any(
            burst.after < step <= burst.upto for step in self._refused
        ):
            return DELIVERED
        return APPLIED

    def restored(self) -> None:
        """The feed begins with what an earlier life had. Nobody knows what the application made
        of it: it judges the documents once more."""
        feed = self.feed
        self.durable = feed.at
        if self.automatic:
            self.applied = feed.at
            return
        for one in feed.updates():
            self._unjudged.append(_Unjudged(0, one.step, one.name, one.version, one.document))
        for name, refusal in feed.refusals.items():
            self._accepted[name] = refusal.instead

    @property
    def claim(self) -> int:
        """A step up to which everything was applied, and nothing is refused at present."""
        return min([self.applied, *(one.floor for one in self._rejected.values())])

    def _advance(self) -> None:
        unjudged = self._unjudged
        reached = unjudged[0].floor if unjudged else self.feed.at
        self.applied = max(self.applied, min(reached, self.durable))
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            level = self._level(one.burst)
            if level > one.told:
                one.told = level
                one.target.settle(level, proof(one.secret, one.burst.id, level))
            if level < APPLIED and one.burst.upto > min(self.applied, self.durable):
                self._waiting.append(one)

    # The application's judgement.

    def on_update(self, update: Update) -> None:
        """The application is about to hear of a change and will judge it."""
        name, version, document = update.name, update.version, update.document
        if self._last_judged(name) >= version:
            # Created anew, with versions of its own, or gone without one.
            for known in (self._judged, self._accepted, self._rejected, self.feed.refusals):
                known.pop(name, None)
        self._unjudged.append(_Unjudged(self.feed.at, update.step, name, version, document))
        if len(self._unjudged) > UNJUDGED_MAX:
            self._refuse(self._unjudged.popleft().step)
            self._counters["unjudged"] += 1

    def _last_judged(self, name: str) -> int:
        last = self._judged.get(name, 0)
        for known in (self._accepted, self._rejected, self.feed.refusals):
            one = known.get(name)
            if one is not None and one.version > last:
                last = one.version
        return last

    def accept(self, name: str, version: int) -> None:
        """The application has applied a version, and with it those before."""
        refused = self._rejected.get(name)
        if refused is None or version > refused.version:
            self._rejected.pop(name, None)
            self.feed.refusals.pop(name, None)
            self._note_accepted(name, version)
        self._judge(name, version)

    def _note_accepted(self, name: str, version: int) -> None:
        document = self.feed.documents.get(name)
        if document is None or document.version != version:
            waiting = (one for one in self._unjudged if (one.name, one.version) == (name, version))
            found = next(waiting, None)
            document = None if found is None else found.document
        accepted = self._accepted.get(name)
        if document is None or (accepted is not None and accepted.version >= version):
            return
        if document.deleted:
            self._accepted.pop(name, None)
        else:
            self._accepted[name] = document

    def reject(self, name: str, version: int, reason: str) -> Rejected | None:
        """The application refuses a version; None if it was judged already."""
        found = (one for one in self._unjudged if (one.name, one.version) == (name, version))
        one = next(found, None)
        if one is None or self._judged.get(name, 0) >= version:
            self._counters["late-judgement"] += 1
            return None
        self._refuse(one.step)
        accepted, said = self._accepted.get(name), reason[:REASON_LENGTH_MAX]
        uses = 0 if accepted is None else accepted.version
        rejected = Rejected(*self.feed.key, one.step, name, said, uses)
        if accepted is not None:
            self.feed.refusals[name] = Refusal(version, accepted)
        before = self._rejected.pop(name, None)
        floor = one.floor if before is None else min(one.floor, before.floor)
        self._rejected[name] = _Refused(version, floor, rejected)
        if len(self._rejected) > REFUSED_MAX:
            oldest = next(iter(self._rejected))
            del self._rejected[oldest]
            self.feed.refusals.pop(oldest, None)
        self._judge(name, version)
        return rejected

    def _refuse(self, step: int) -> None:
        self._refused[step] = None
        if len(self._refused) > REFUSED_MAX:
            del self._refused[next(iter(self._refused))]

    def _judge(self, name: str, version: int) -> None:
        if version > self._judged.get(name, 0):
            self._judged[name] = version
        unjudged, judged = self._unjudged, self._judged
        while unjudged and judged.get(unjudged[0].name, 0) >= unjudged[0].version:
            unjudged.popleft()
        if not unjudged:
            judged.clear()
        elif len(judged) > UNJUDGED_MAX:
            names = {one.name for one in unjudged}
            self._judged = {name: last for name, last in judged.items() if name in names}
        self._advance()

    def rejections(self) -> list[Rejected]:
        """What is refused at present: a new primary has not heard of it."""
        return [one.message for one in self._rejected.values()]
