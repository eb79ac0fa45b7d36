"""Links that siblings have dialled: who may bring bursts here (RIP-12).

A relay shows its pass first: signed by a node that serves this container, of the same application
and site, not expired, and given to the very certificate that the link shows, where links show
one. Anything else ends the link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from sys import intern

from msgspec.structs import replace

from swell.config.messages import Introduce
from swell.config.proofs import Pass, is_list_signed, read_pass
from swell.errors import WireError
from swell.overlay.contact import Contact
from swell.overlay.messages import LinkKind, Refused
from swell.overlay.sessions import Session, Sessions
from swell.world import World

SIBLINGS_MAX = 64


class Siblings:
    """`keys()`: of the nodes that serve this container; `lost(session)`: a link has ended."""

    def __init__(
        self,
        world: World,
        cluster: str,
        owner: str,
        site: str,
        sessions: Sessions,
        keys: Callable[[], Iterable[bytes]],
        counters: Counter[str],
        lost: Callable[[Session], None],
    ) -> None:
        self._world = world
        self._cluster = cluster
        self._owner = owner
        self._site = site
        self._keys = keys
        self._counters = counters
        self._lost = lost
        self._passes: dict[Session, Pass | None] = {}
        sessions.accept(LinkKind.RELAY, self)
        sessions.handle(Introduce, self.on_introduce, (LinkKind.RELAY,))

    def of(self, session: Session) -> Pass | None:
        """Who brings bursts on this link, if he may."""
        return self._passes.get(session)

    def on_introduce(self, session: Session, introduce: Introduce) -> None:
        reason = self._judge(session, introduce.pass_)
        if reason:
            self.refuse(session, f"pass-{reason}")

    def _judge(self, session: Session, data: bytes) -> str:
        """Why a pass does not count, or nothing."""
        if session not in self._passes:
            return "unexpected"
        shown = self._read(data)
        if shown is None:
            return "unknown-key"
        if shown.cluster != self._cluster:
            return "cluster"
        if shown.application != self._owner:
            return "application"
        if shown.site != self._site:
            return "site"
        if shown.expires_s * 1_000_000 <= self._world.wall_us():
            return "expired"
        identity = session.link.peer
        if identity and shown.holder != identity:
            return "holder"
        # Many containers of a process have the same relay; its name is looked up with every burst.
        self._passes[session] = replace(shown, container=intern(shown.container))
        return ""

    def _read(self, data: bytes) -> Pass | None:
        for key in self._keys():
            try:
                return read_pass(data, key)
            except WireError:
                continue
        return None

    def is_signed(self, digest: bytes, signature: bytes) -> bool:
        """Whether a node has made this list for containers like this one."""
        about = self._cluster, self._owner, self._site, digest
        return any(is_list_signed(signature, key, *about) for key in self._keys())

    def refuse(self, session: Session, reason: str) -> None:
        """End a link that breaks the rules."""
        self._counters[f"refused-{reason}"] += 1
        self._passes.pop(session, None)
        session.close(reason=reason)
        self._lost(session)

    # Links.

    def admit(self, contact: Contact) -> Refused | None:
        if len(self._passes) >= SIBLINGS_MAX:
            return Refused("full", f"at most {SIBLINGS_MAX} siblings may relay to this container")
        return None

    def on_open(self, session: Session) -> None:
        self._passes[session] = None

    def on_closed(self, session: Session, reason: str) -> None:
        self._passes.pop(session, None)
        self._lost(session)
