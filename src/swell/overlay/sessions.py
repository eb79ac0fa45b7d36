"""Sessions: links with a known peer and purpose.

A link begins with a handshake: the dialling side says `Hello` (cluster, purpose, who it is), the
accepting side `Welcome` or `Refused`. Only then frames are dispatched, by the kind of the session
and their own type, to the handler that registered for both. Whoever opened a session, or accepts
its kind, owns it and hears of its beginning and end.

Invariants: no frame reaches a handler before the handshake, nor on a session of another kind than
the handler asked for; a peer's name is the one in its certificate where the world knows it, in
both directions; a peer of another cluster gets one clear refusal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from swell.errors import WireError
from swell.overlay.contact import Contact
from swell.overlay.messages import Hello, LinkKind, Refused, Welcome
from swell.wire import codec
from swell.wire.codec import TYPE_OFFSET
from swell.world import Address, Link, Plane, Role, World

_HELLO = 1
_WELCOME = 2
_REFUSED = 3

Handler = Callable[["Session", bytes], None]
Table = list[Handler | None]
"""Handlers of one kind of session, by the type of the frame."""

NODE_KINDS = (LinkKind.CLIQUE, LinkKind.CANDIDATE)
"""Sessions between nodes that the directory has admitted: an overlay's own."""

_ANYBODY_DIALS = (LinkKind.CLIENT, LinkKind.RELAY)
_ANYBODY_ACCEPTS = (LinkKind.RELAY,)
"""Kinds of sessions whose dialling or accepting side need not be a node."""

_NODES = (Role.NODE, Role.UNKNOWN)


class Access(Protocol):
    """What the peer of a session may do (`swell.access.grants`)."""

    @property
    def everything(self) -> bool: ...

    @property
    def token(self) -> str:
        """The id of the token that it comes from; empty: of none."""
        ...

    def may(self, right: str, application: str, name: str | None = "") -> bool:
        """`name`: one name, empty for all of the application, None for any one of it."""
        ...

    def refusal(self, right: str, application: str, name: str | None = "") -> str:
        """A sentence that says why it may not; empty if it may."""
        ...


class Session:
    """One link after (or during) its handshake."""

    __slots__ = (
        "_all",
        "access",
        "contact",
        "handlers",
        "kind",
        "link",
        "load",
        "open",
        "owner",
        "refusal",
        "zone",
    )

    def __init__(
        self, link: Link, kind: LinkKind, owner: Owner | None, registry: dict[Session, None]
    ) -> None:
        self._all = registry
        registry[self] = None
        link.session = self
        self.link = link
        self.kind = kind
        self.owner = owner
        self.handlers: Table = []
        self.contact: Contact | None = None
        self.zone = 0
        self.open = False
        self.load = 0
        self.refusal: Refused | None = None
        self.access: Access | None = None
        """Of an accepted client; None: nothing."""

    @property
    def peer(self) -> Contact:
        assert self.contact is not None, "a session has a contact once it is open"
        return self.contact

    def send(self, value: Any) -> bool:
        """Send one control message."""
        return self.link.send(codec.encode(value), Plane.CONTROL)

    def refuse(self, code: str, sentence: str) -> None:
        """Tell the peer why this session ends, and end it."""
        owner = self.owner
        self.send(Refused(code, sentence))
        self.close(drain=True, reason=code)
        if owner is not None:
            owner.on_closed(self, code)

    def close(self, drain: bool = False, reason: str = "") -> None:
        """End it; the owner is not called."""
        self.open = False
        self.owner = None
        self._all.pop(self, None)
        self.link.close(drain, reason)


class Owner(Protocol):
    """Who uses a session."""

    def on_open(self, session: Session) -> None: ...

    def on_closed(self, session: Session, reason: str) -> None: ...


class Acceptor(Owner, Protocol):
    """Who takes accepted sessions of a kind."""

    def admit(self, contact: Contact) -> Refused | None:
        """Why this peer must be refused, or None."""
        ...


class Sessions:
    """All sessions of one node, and the dispatch of frames to handlers."""

    def __init__(
        self,
        world: World,
        cluster: str,
        me: Callable[[], Contact],
        load: Callable[[], int],
        counters: Counter[str],
    ) -> None:
        self._world = world
        self._cluster = cluster
        self._me = me
        self._load = load
        self._counters = counters
        self._acceptors: dict[int, Acceptor] = {}
        self._tables: dict[int, Table] = {}
        """Of the kinds in use: a client has one or two of them."""
        self._all: dict[Session, None] = {}
        self.access_of: Callable[[Session], Access | None] = lambda session: None
        """What an accepted client may do at first."""

    def open(self, address: Address, identity: str, kind: LinkKind, owner: Owner) -> Session:
        """Dial; `owner.on_open` or `owner.on_closed` follows."""
        return Session(self._world.dial(address, identity), kind, owner, self._all)

    def accept(self, kind: LinkKind, acceptor: Acceptor) -> None:
        """Let `acceptor` own the accepted sessions of this kind."""
        self._acceptors[kind] = acceptor

    def handle(
        self, cls: type, function: Callable[[Session, Any], None], kinds: Sequence[LinkKind]
    ) -> None:
        """Give messages of this class to `function(session, message)`, on these sessions only."""

        decode = codec.decoder(cls)

        def decoded(session: Session, frame: bytes) -> None:
            function(session, decode(frame))

        self.handle_frames(cls.wire_type, decoded, kinds)  # type: ignore[attr-defined]

    def handle_frames(
        self, number: int, function: Handler, kinds: Sequence[LinkKind] = NODE_KINDS
    ) -> None:
        """Give frames of this type to `function(session, frame)`, undecoded."""
        for kind in kinds:
            self._table(kind)[number] = function

    def _table(self, kind: int) -> Table:
        table = self._tables.get(kind)
        if table is None:
            table = self._tables[kind] = [None] * 256
        return table

    def retire(self, kinds: Sequence[LinkKind], reason: str) -> None:
        """End all sessions of these kinds, draining what is queued, and accept no more of them;
        their owners are not called."""
        for kind in kinds:
            self._acceptors.pop(kind, None)
        for session in list(self._all):
            if session.kind in kinds and (session.open or session.link.dialed):
                session.close(drain=session.open, reason=reason)

    def close_all(self, reason: str) -> None:
        """End every session, draining what is queued."""
        for session in list(self._all):
            session.close(drain=True, reason=reason)

    # The world's side.

    def on_link_up(self, link: Link) -> None:
        session: Session | None = link.session
        if session is None:
            Session(link, LinkKind.CLIENT, None, self._all)
        elif link.dialed:
            session.send(Hello(self._cluster, session.kind, self._me()))

    def on_link_down(self, link: Link, reason: str) -> None:
        session: Session | None = link.session
        if session is None:
            return
        self._all.pop(session, None)
        session.open = False
        if session.owner is not None:
            owner, session.owner = session.owner, None
            owner.on_closed(session, reason)

    def on_frame(self, link: Link, frame: bytes) -> None:
        session: Session = link.session
        if session.open:
            handler = session.handlers[frame[TYPE_OFFSET]]
            if handler is None:
                reason = "unexpected-type" if codec.known(frame[TYPE_OFFSET]) else "unknown-type"
                raise WireError(reason, f"type {frame[TYPE_OFFSET]} on a {session.kind.name} link")
            handler(session, frame)
        else:
            self._on_handshake(session, frame)

    def _on_handshake(self, session: Session, frame: bytes) -> None:
        number = frame[TYPE_OFFSET]
        if session.link.dialed and number in (_WELCOME, _REFUSED):
            message = codec.decode(frame)
            if isinstance(message, Refused):
                self.on_refused(session, message)
            else:
                self._on_welcome(session, message)
        elif not session.link.dialed and number == _HELLO:
            self._on_hello(session, codec.decode(frame))
        else:
            raise WireError("no-handshake", f"type {number} before the handshake")

    def _on_welcome(self, session: Session, welcome: Welcome) -> None:
        identity = session.link.peer
        if identity and identity != welcome.contact.name:
            raise WireError("wrong-identity", f"{identity} says it is {welcome.contact.name}")
        if session.kind not in _ANYBODY_ACCEPTS and session.link.role not in _NODES:
            raise WireError("wrong-role", f"{identity} has no certificate of a node")
        session.load = welcome.load
        self._open(session, welcome.contact)

    def on_refused(self, session: Session, refusal: Refused) -> None:
        """In the handshake; a client may hear it later too, if it handles the message."""
        self._counters["refused-by-peer"] += 1
        session.refusal = refusal
        owner = session.owner
        session.close(reason=refusal.code)
        if owner is not None:
            owner.on_closed(session, refusal.code)

    def _on_hello(self, session: Session, hello: Hello) -> None:
        refusal = self._judge(session, hello)
        if refusal is not None:
            self._counters[f"refused-{refusal.code}"] += 1
            session.send(refusal)
            session.close(drain=True, reason=refusal.code)
            return
        session.kind = LinkKind(hello.kind)
        session.access = self.access_of(session)
        session.owner = self._acceptors[hello.kind]
        session.send(Welcome(self._me(), self._load()))
        self._open(session, hello.contact)

    def _judge(self, session: Session, hello: Hello) -> Refused | None:
        if hello.cluster != self._cluster:
            return Refused(
                "wrong-cluster",
                f"this node belongs to cluster {self._cluster}, not {hello.cluster}",
            )
        identity = session.link.peer
        if identity and hello.kind != LinkKind.CLIENT and identity != hello.contact.name:
            return Refused(
                "wrong-identity",
                f"the certificate says {identity}, the hello says {hello.contact.name}",
            )
        if hello.kind not in _ANYBODY_DIALS and session.link.role not in _NODES:
            return Refused(
                "wrong-role",
                f"{identity} has the certificate of a {session.link.role}: make a node's own with "
                "`swell cluster issue`",
            )
        acceptor = self._acceptors.get(hello.kind)
        if acceptor is None:
            return Refused("not-served", "this node does not serve links of that kind")
        if hello.kind in NODE_KINDS and not hello.contact.id:
            return Refused("not-admitted", "the directory gives ids: join first")
        return acceptor.admit(hello.contact)

    def _open(self, session: Session, contact: Contact) -> None:
        session.contact = contact
        session.zone = contact.zone
        session.handlers = self._table(session.kind)
        session.open = True
        if session.owner is not None:
            session.owner.on_open(session)
