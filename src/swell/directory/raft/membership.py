"""Who votes: the configuration, and the rules for changing it one server at a time.

Two configurations that differ by one voter have overlapping majorities (Ongaro's thesis, 4.1), so
a change is used as soon as it is in the log. A leader must have committed an entry of its own term
before it begins a change (the 2015 correction), and only one change may be uncommitted.

A learner receives the log and counts for nothing. The token of a learner is not zero if it is a
former voter whose journal was unclean: it names the loss, so that this voter knows the change that
fences its former votes from any earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

VOTERS_MAX = 9


class Configuration(msgspec.Struct, frozen=True, array_like=True):
    """`voters` in order of name; `learners` with their tokens."""

    voters: tuple[str, ...] = ()
    learners: dict[str, int] = {}

    @property
    def members(self) -> tuple[str, ...]:
        return (*self.voters, *sorted(self.learners))

    def without(self, name: str) -> Configuration:
        return Configuration(
            tuple(voter for voter in self.voters if voter != name),
            {learner: token for learner, token in self.learners.items() if learner != name},
        )

    def with_voter(self, name: str) -> Configuration:
        rest = self.without(name)
        return Configuration(tuple(sorted((*rest.voters, name))), rest.learners)

    def with_learner(self, name: str, token: int = 0) -> Configuration:
        rest = self.without(name)
        return Configuration(rest.voters, {**rest.learners, name: token})


def configuration(voters: Mapping[str, object] | tuple[str, ...] | list[str]) -> Configuration:
    return Configuration(tuple(sorted(set(voters))))


def is_single_change(old: Configuration, new: Configuration) -> bool:
    """At most one voter more or less, somebody left, nobody in two roles."""
    difference = set(old.voters) ^ set(new.voters)
    return (
        old != new
        and len(difference) <= 1
        and 0 < len(new.voters) <= VOTERS_MAX
        and not set(new.voters) & set(new.learners)
    )


_decoder = msgspec.msgpack.Decoder(Configuration)


def encode_configuration(value: Configuration) -> bytes:
    return msgspec.msgpack.encode(value, order="deterministic")


def decode_configuration(data: bytes) -> Configuration:
    return _decoder.decode(data)
