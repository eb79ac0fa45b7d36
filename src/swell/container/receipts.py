"""What a container says of the bursts of one feed, and when (RIP-10, RIP-14).

Three marks only grow: what is here (`Feed.at`), what is *durable* (the same without a snapshot),
and what is *applied*: judged by the application, or at once if nobody is asked. A burst is
delivered when the durable mark has reached its last step, and applied when the applied mark has,
the application refused nothing of it, and the primary knows of all that it refused before
(`swell.container.rejections`). So a burst that comes again gets its receipt again, and one whose
steps came by another way gets it too: it says what is true.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import NamedTuple, Protocol

from swell.config.bursts import Burst
from swell.config.messages import Level, Rejected
from swell.config.proofs import proof
from swell.container.documents import Document, Refusal, Update
from swell.container.feed import Feed
from swell.container.rejections import REFUSED_MAX, Refused, Rejections

WAITING_MAX = 256
"""Bursts of one feed that have not reached their last level."""

UNJUDGED_MAX = 4096
"""Changes that the application has not judged; the oldest are then taken as never judged."""

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
    """`floor`: where the burst begins that brought it. `sealed_us`: when that was sealed; None if
    an earlier life had it."""

    floor: int
    step: int
    name: str
    version: int
    document: Document
    sealed_us: int | None


class Receipts:
    """Of one feed. `automatic`: what is here counts as applied."""

    __slots__ = (
        "_accepted", "_counters", "_judged", "_refused", "_unjudged", "_waiting", "applied",
        "automatic", "durable", "feed", "rejections",
    )  # fmt: skip

    def __init__(self, feed: Feed, automatic: bool, counters: Counter[str]) -> None:
        self.feed = feed
        self.automatic = automatic
        self.durable = feed.at
        self.applied = feed.at
        self.rejections = Rejections()
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
        level = self._level(burst, secret)
        if level:
            target.settle(level, proof(secret, burst.id, level))
        if not self._may_rise(burst, level):
            return
        self._waiting.append(_Waiting(burst, secret, target, level))
        if len(self._waiting) > WAITING_MAX:
            self._waiting.popleft()
            self._counters["receipts-dropped"] += 1

    def on_durable(self, step: int) -> None:
        """Everything up to this step outlives a crash."""
        self.durable = max(self.durable, step)
        self._advance()

    def _level(self, burst: Burst, secret: bytes) -> int:
        upto = burst.upto
        if upto > min(self.durable, self.feed.at):
            return 0
        if upto > self.applied or self._refuses(burst) or self.rejections.hides_from(secret, upto):
            return DELIVERED
        return APPLIED

    def _refuses(self, burst: Burst) -> bool:
        return any(burst.after < step <= burst.upto for step in self._refused)

    def _may_rise(self, burst: Burst, level: int) -> bool:
        """Whether more than this can be said of a burst later on."""
        if not level or burst.upto > self.applied:
            return True
        return level < APPLIED and self.rejections.hides(burst.upto) and not self._refuses(burst)

    def on_heard(self, said: int, step: int) -> None:
        """The node has so many of the rejections: what was held back for them is said."""
        if self.rejections.note_heard(said, step):
            self._advance()

    def restored(self) -> None:
        """The feed begins with what an earlier life had. Nobody knows what the application made
        of it: it judges the documents once more."""
        feed = self.feed
        self.durable = feed.at
        if self.automatic:
            self.applied = feed.at
            return
        for one in feed.updates():
            about = one.step, one.name, one.version, one.document
            self._unjudged.append(_Unjudged(0, *about, None))
        for name, refusal in feed.refusals.items():
            self._accepted[name] = refusal.instead

    @property
    def claim(self) -> int:
        """A step up to which everything was applied, and nothing is refused at present, nor was
        and has not been said: on the own link it may be told behind what was said."""
        return int(min(self.applied, self.rejections.floor))

    def _advance(self) -> None:
        unjudged = self._unjudged
        reached = unjudged[0].floor if unjudged else self.feed.at
        self.applied = max(self.applied, min(reached, self.durable))
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            level = self._level(one.burst, one.secret)
            if level > one.told:
                one.told = level
                one.target.settle(level, proof(one.secret, one.burst.id, level))
            if self._may_rise(one.burst, level):
                self._waiting.append(one)

    # The application's judgement.

    def on_update(self, update: Update) -> None:
        """The application is about to hear of a change and will judge it."""
        name, version, feed = update.name, update.version, self.feed
        if self._last_judged(name) >= version:
            # Created anew, with versions of its own, or gone without one.
            for known in (self._judged, self._accepted, self.rejections.current, feed.refusals):
                known.pop(name, None)
        about = update.step, name, version, update.document
        self._unjudged.append(_Unjudged(feed.at, *about, feed.sealed_us))
        if len(self._unjudged) > UNJUDGED_MAX:
            self._refuse(self._unjudged.popleft().step)
            self._counters["unjudged"] += 1

    def _last_judged(self, name: str) -> int:
        last = self._judged.get(name, 0)
        for known in (self._accepted, self.rejections.current, self.feed.refusals):
            one = known.get(name)
            if one is not None and one.version > last:
                last = one.version
        return last

    def accept(self, name: str, version: int) -> None:
        """The application has applied a version, and with it those before."""
        rejected = self.rejections.current
        refused = rejected.get(name)
        if refused is None or version > refused.version:
            rejected.pop(name, None)
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

    def reject(self, name: str, version: int, reason: str) -> Refused | None:
        """The application refuses a version; None if it was judged already."""
        found = (one for one in self._unjudged if (one.name, one.version) == (name, version))
        one = next(found, None)
        if one is None or self._judged.get(name, 0) >= version:
            self._counters["late-judgement"] += 1
            return None
        self._refuse(one.step)
        accepted, said = self._accepted.get(name), reason[:REASON_LENGTH_MAX]
        uses = 0 if accepted is None else accepted.version
        if accepted is not None:
            self.feed.refusals[name] = Refusal(version, accepted)
        rejected = Rejected(*self.feed.key, one.step, name, said, uses)
        refused = Refused(version, one.floor, rejected, one.sealed_us)
        forgotten = self.rejections.add(refused)
        if forgotten:
            self.feed.refusals.pop(forgotten, None)
        self._judge(name, version)
        return refused

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
