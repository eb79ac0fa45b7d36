"""What a member reports about itself."""

from __future__ import annotations

from swell.events import Event


class LeaderElected(Event, frozen=True):
    """This member leads the group in `term`."""

    term: int


class JournalUnclean(Event, frozen=True):
    """This member's journal lost something: it gives no vote until it is taken back."""

    reason: str
