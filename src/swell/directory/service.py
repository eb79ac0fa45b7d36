"""One voter of the directory: the state that the log adds up to, and who may change it.

THOR 3.1's membership service on a replicated log. Every voter applies the same records; the leader
alone serves nodes: it begins once everything of earlier terms is applied, and ends its sessions
when it leads no more. Whatever it decides is in the log of a majority before anybody hears of it.
What it answers from its state otherwise (candidates, look-ups, views) are hints; `read` tells
those who need certainty when the state is as new as anything acknowledged before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from swell.directory import group, records
from swell.directory.admission import Admission
from swell.directory.group import GroupChange
from swell.directory.liveness import Liveness
from swell.directory.messages import (
    CandidatesReply,
    CandidatesRequest,
    GroupReply,
    GroupRequest,
    JoinRequest,
    LookupReply,
    LookupRequest,
    Voter,
    VoterState,
    ZoneReport,
)
from swell.directory.planner import Planner
from swell.directory.proposals import Outcomes, Proposals
from swell.directory.raft.driver import Machine, Raft
from swell.directory.raft.errors import RaftError
from swell.directory.raft.messages import RaftMessage
from swell.directory.records import Record, State
from swell.directory.registry_messages import RegistryRequest, RegistryWatch
from swell.directory.registry_service import RegistryService
from swell.directory.trust import Opening, ReadJournal
from swell.directory.voterlinks import VoterLinks
from swell.errors import SwellError, UnavailableError
from swell.journal import Journal, Recovered
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind, Refused
from swell.overlay.sessions import Session, Sessions
from swell.settings import DirectorySettings, OverlaySettings, StoreSettings
from swell.world import Address, World

JOURNAL = "directory"


class DirectoryService:
    """One voter, on the node that hosts it."""

    def __init__(
        self,
        world: World,
        me: str,
        voters: Sequence[Voter],
        overlay: OverlaySettings,
        settings: DirectorySettings,
        store: StoreSettings,
        sessions: Sessions,
        counters: Counter[str],
        bugs: frozenset[str] = frozenset(),
    ) -> None:
        self._world = world
        self._me = me
        self._first = {voter.name: voter.address for voter in voters}
        self._settings = settings
        self._counters = counters
        self._bugs = bugs
        self._journal = Journal(world, JOURNAL, counters=counters)
        self._opening = Opening(world, self._journal, me, self._first, self._begin)
        self._outcomes: list[bool] = []
        """Of the command applied last."""
        self._clients: dict[Session, None] = {}
        self._change: GroupChange | None = None
        self.raft: Raft | None = None
        """None until the journal is read, and trusted or not."""
        self.state = State()
        self.leading = False
        """Does this voter lead, with everything of earlier terms applied?"""
        self.on_leading: list[Callable[[], None]] = []
        self.on_following: list[Callable[[], None]] = []
        """Called when `leading` begins and when it ends."""
        self.on_applied: list[Callable[[Record], None]] = []
        """Called on every voter when a record took effect."""
        self.on_restored: list[Callable[[], None]] = []
        """Called on every voter when the whole state came anew, from a snapshot."""
        self._proposals = Proposals(world, settings.raft.command_bytes_max, self._submit)
        self._liveness = Liveness(world, overlay, settings, self.state, self.propose, counters)
        self.admission = Admission(
            world, overlay, self.state, self.propose, self._liveness.seen, counters
        )
        self.registry = RegistryService(world, self.state, self.propose, self.read, counters)
        self.on_applied.append(self.registry.on_applied)
        planner = Planner(world, overlay, store, self.state, self.registry.change, counters)
        self.on_leading.append(planner.start)
        self.on_following.append(planner.stop)
        self._links = VoterLinks(world, me, sessions, self, counters)
        kinds = (LinkKind.DIRECTORY,)
        sessions.accept(LinkKind.DIRECTORY, self)
        sessions.handle(JoinRequest, self._while_leading(self.admission.on_join), kinds)
        sessions.handle(CandidatesRequest, self._while_leading(self.on_candidates), kinds)
        sessions.handle(LookupRequest, self._while_leading(self.on_lookup), kinds)
        sessions.handle(ZoneReport, self._while_leading(self._liveness.on_report), kinds)
        sessions.handle(GroupRequest, self._while_leading(self.on_group), kinds)
        sessions.handle(RegistryRequest, self._while_leading(self.registry.on_request), kinds)
        sessions.handle(RegistryWatch, self._while_leading(self.registry.on_watch), kinds)

    # -- start and stop ------------------------------------------------------------------------

    def start(self) -> None:
        """Read the log, find out whether it can be trusted, then take part."""
        self._links.start()
        self._opening.start()

    def _begin(self, recovered: Recovered, trusted: bool) -> None:
        if not trusted:
            self._counters["directory-emptied"] += 1
        self.raft = Raft(
            self._world,
            self._me,
            self._first if trusted else (),
            ReadJournal(self._world, self._journal, recovered),
            self._links.send,
            Machine(self._apply, self._snapshot, self._restore),
            self._counters,
            self._settings.raft,
            self._bugs,
            trusted,
        )
        self.raft.on_role = self._on_role

    def stop(self) -> None:
        """Take part no more; leadership is not handed over, the others notice."""
        self._opening.stop()
        self._links.stop()
        self._end_leading()
        if self.raft is not None:
            self.raft.stop()

    # -- the log -------------------------------------------------------------------------------

    def propose(self, changes: Sequence[Record], done: Callable[[Outcomes], None]) -> None:
        """Log changes. `done` gets for each whether it took effect, once all are applied here; or
        None if that is not known: leadership was lost, or never there."""
        self._proposals.add(changes, done)

    def read(self, done: Callable[[bool], None]) -> None:
        """`done(True)` when the state here is as new as anything acknowledged before this call."""
        if self.raft is None:
            self._world.call_later(0.0, lambda: done(False))
        else:
            self.raft.read(lambda result: done(not isinstance(result, RaftError)))

    def _submit(self, command: bytes, done: Callable[[Outcomes], None]) -> None:
        if self.raft is None:
            done(None)
            return
        self.raft.propose(
            command, lambda result: done(None if isinstance(result, RaftError) else self._outcomes)
        )

    def _apply(self, index: int, command: bytes) -> None:
        changes = self._decode(command)
        self._outcomes = []
        for change in changes:
            took_effect = self.state.apply(change)
            self._outcomes.append(took_effect)
            if took_effect:
                for hook in self.on_applied:
                    hook(change)

    def _decode(self, data: bytes) -> list[Record]:
        try:
            return records.decode_all(data)
        except msgspec.DecodeError as error:
            self._world.halt(f"the directory's log is of another version: {error}")
            assert self.raft is not None
            self.raft.stop()
            return []

    def _snapshot(self) -> bytes:
        return records.encode(list(self.state.snapshot()))

    def _restore(self, index: int, data: bytes) -> None:
        self.state.clear()
        for change in self._decode(data):
            self.state.apply(change)
        for hook in self.on_restored:
            hook()

    # -- leading -------------------------------------------------------------------------------

    def _on_role(self) -> None:
        assert self.raft is not None
        self._end_leading()
        term = self.raft.led_term

        def applied(result: int | RaftError) -> None:
            assert self.raft is not None
            if not isinstance(result, RaftError) and self.raft.led_term == term:
                self._begin_leading()

        if term:
            self.raft.read(applied)

    def _begin_leading(self) -> None:
        self.leading = True
        self._counters["directory-leading"] += 1
        self._liveness.start()
        self.registry.start()
        for hook in self.on_leading:
            hook()

    def _end_leading(self) -> None:
        if not self.leading:
            return
        self.leading = False
        self._liveness.stop()
        self.admission.stop()
        self.registry.stop()
        self._proposals.fail()
        if self._change is not None:
            self._change.stop()
        clients, self._clients = self._clients, {}
        for session in clients:
            session.close(drain=True, reason="not-leader")
        for hook in self.on_following:
            hook()

    # -- sessions of nodes ---------------------------------------------------------------------

    def admit(self, contact: Contact) -> Refused | None:
        if self.leading:
            return None
        if self.raft is None:
            return Refused("not-ready", "the directory is reading its log: try again")
        leader = self.raft.leader
        address = self.members().get(leader)
        sentence = "another voter leads the directory: ask that one"
        if address is None or leader == self._me:
            return Refused("not-leader", "no voter leads the directory now: try again")
        return Refused("not-leader", sentence, leader, address.host, address.port)

    def on_open(self, session: Session) -> None:
        self._clients[session] = None

    def on_closed(self, session: Session, reason: str) -> None:
        self._clients.pop(session, None)
        self.admission.forget(session)
        self.registry.forget(session)

    def _while_leading(
        self, handler: Callable[[Session, Any], None]
    ) -> Callable[[Session, Any], None]:
        """What still arrives on sessions that were ended is not looked at."""

        def handle(session: Session, message: Any) -> None:
            if session in self._clients:
                handler(session, message)

        return handle

    def on_candidates(self, session: Session, request: CandidatesRequest) -> None:
        found = tuple(self.admission.sample(request.zone, request.count))
        session.send(CandidatesReply(request.number, found))

    def on_lookup(self, session: Session, request: LookupRequest) -> None:
        entry = self.state.entry(request.name)
        session.send(LookupReply(request.number, entry.contact if entry else None))

    def on_group(self, session: Session, request: GroupRequest) -> None:
        def reply(error: SwellError | None) -> None:
            if session in self._clients:
                session.send(self._group(request.number, "" if error is None else str(error)))

        if request.change and request.voter is not None:
            self.change_voters(request.change == "add", request.voter, reply)
        else:
            reply(None)

    def _group(self, number: int, error: str) -> GroupReply:
        raft = self.raft
        assert raft is not None
        assert raft.core is not None
        members = group.describe(raft, self.members(), self._links.up)
        return GroupReply(number, raft.leader, raft.core.state.term, tuple(members), error)

    def change_voters(
        self, add: bool, voter: Voter, done: Callable[[SwellError | None], None]
    ) -> None:
        """Add a voter or remove one, at the leader; `done` gets None when it is carried out."""
        error: SwellError
        if self.raft is None or not self.leading:
            error = UnavailableError("this voter does not lead the directory: ask the leader")
        elif self._change is not None and not self._change.over:
            error = UnavailableError("another change of voters is under way: try again later")
        else:
            self._change = GroupChange(self._world, self.raft, self.propose, add, voter, done)
            self._world.call_later(0.0, self._change.start)
            return
        self._world.call_later(0.0, lambda: done(error))

    # -- the other voters ----------------------------------------------------------------------

    def members(self) -> dict[str, Address | None]:
        """Everybody in the group and where they are, as far as that is known here."""
        core = None if self.raft is None else self.raft.core
        known: dict[str, Address | None] = {**self.state.voters, **self._first}
        if core is None or not core.log.configuration.members:
            return known
        return {name: known.get(name) for name in core.log.configuration.members}

    def _voters(self) -> tuple[Voter, ...]:
        members = self.members().items()
        return tuple(Voter(name, *address) for name, address in members if address is not None)

    def voter_state(self) -> VoterState | None:
        if self._opening.empty:
            return VoterState(True, self._voters())
        core = None if self.raft is None else self.raft.core
        if core is None:
            return None
        return VoterState(core.log.last == 0 and not core.state.unclean, self._voters())

    def on_voter_state(self, peer: str, state: VoterState) -> None:
        self._opening.hear(peer, state.empty)

    def on_reachable(self, peer: str) -> None:
        if self.raft is not None:
            self.raft.on_reachable(peer)

    def on_raft(self, peer: str, message: RaftMessage) -> None:
        if self.raft is not None:
            self.raft.on_message(peer, message)

    def statistics(self) -> dict[str, Any]:
        """THOR 3.1: totals that decide where newcomers go; and how the voters stand."""
        up = sum(1 for entry in self.state.nodes.values() if entry.up)
        core = None if self.raft is None else self.raft.core
        result: dict[str, Any] = {
            "nodes": len(self.state.nodes),
            "up": up,
            "zones": len(self.state.view().zones),
            "epoch": self.state.epoch,
            "role": "starting" if core is None else core.role.name.lower().replace("_", "-"),
            "leader": "" if core is None else core.leader,
        }
        if core is not None:
            result |= {
                "term": core.state.term,
                "voters": list(core.log.configuration.voters),
                "learners": sorted(core.log.configuration.learners),
                "applied": core.log.applied,
                "log": core.log.last,
                "unclean": bool(core.state.unclean),
            }
        return result
