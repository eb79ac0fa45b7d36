"""Messages between nodes and the directory, and between its voters apart from Raft's own."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from swell.overlay.contact import Contact, Number, Port, Text
from swell.overlay.membership_messages import Count
from swell.overlay.view import View
from swell.wire.codec import Message, message
from swell.world import Address

CANDIDATES_MAX = 64
VOTERS_TOLD_MAX = 16

Life = Annotated[bytes, Meta(max_length=8)]
"""Random number of one run of a process."""


@message(48)
class JoinRequest(Message, frozen=True):
    """Give me an id and a zone. `uid` names my data directory: it tells a restart of the same
    node from another machine with the same name. `life` names this run of the process: it tells
    a request that is asked again from a second process on a copy of the data directory."""

    name: Text
    uid: Text
    site: Text
    region: Text
    rack: Text
    host: Text
    port: Port
    epoch: Number
    leaving: Number = 0
    """The zone this node is asked to leave, if it moves; else 0."""
    life: Life = b""


class Bootstrap(Message, frozen=True):
    """A zone to connect to, and members of it to try."""

    zone: int
    contacts: tuple[Contact, ...]


@message(49)
class JoinReply(Message, frozen=True):
    """Welcome: who you are, who is in your zone, which zones are yours to connect."""

    contact: Contact
    members: tuple[Contact, ...]
    bootstrap: tuple[Bootstrap, ...]
    view: View


OLD_COPY = "stale-epoch"
"""Code of a refusal: the data directory is an old copy, whatever number of starts it comes to."""


@message(50)
class JoinRefused(Message, frozen=True):
    """Never: `name-in-use`, `stale-epoch`, `bad-name`, `wrong-identity`. The node must not try
    again as it is."""

    code: str
    sentence: str


@message(51)
class CandidatesRequest(Message, frozen=True):
    number: int
    zone: int
    count: Annotated[int, Meta(ge=1, le=CANDIDATES_MAX)]


@message(52)
class CandidatesReply(Message, frozen=True):
    number: int
    contacts: tuple[Contact, ...]


@message(53)
class LookupRequest(Message, frozen=True):
    number: int
    name: str


@message(54)
class LookupReply(Message, frozen=True):
    number: int
    contact: Contact | None


@message(55)
class ZoneReport(Message, frozen=True):
    """A delegate tells who is alive in its zone: (id, epoch)."""

    zone: int
    members: tuple[tuple[Number, Number], ...]
    view_epoch: Count


@message(56)
class ReportReply(Message, frozen=True):
    """The view, if it is newer; `strangers`: members of the zone that others have seen alive and
    the report did not name (after a partition); `retire`: the zone is too small to last, its
    members move."""

    zone: int
    view: View | None
    strangers: tuple[Contact, ...]
    retire: bool


class Voter(Message, frozen=True):
    """A voter of the directory and where it is. Nodes that only ask need no names."""

    name: Text
    host: Text
    port: Port

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


Voters = Annotated[tuple[Voter, ...], Meta(max_length=VOTERS_TOLD_MAX)]


@message(57)
class VoterState(Message, frozen=True):
    """Voter → voter, on a new link and every second: I am here, these are the members of the
    group as I know them; `empty`: my log is empty and I never lost one."""

    empty: bool
    voters: Voters


class GroupMember(Message, frozen=True):
    """A voter or learner as the leader sees it; `log`: up to where its log equals the leader's."""

    voter: Voter
    role: Literal["voter", "learner"]
    log: Count
    reachable: bool


@message(58)
class GroupRequest(Message, frozen=True):
    """Node → leader: who are the voters? Number 0: are you still there? Or a change of one."""

    number: Count = 0
    change: Literal["", "add", "remove"] = ""
    voter: Voter | None = None


@message(59)
class GroupReply(Message, frozen=True):
    """Leader → node. `error`: the sentence why a change was not made."""

    number: Count
    leader: Text
    term: Count
    members: Annotated[tuple[GroupMember, ...], Meta(max_length=VOTERS_TOLD_MAX)]
    error: str = ""
