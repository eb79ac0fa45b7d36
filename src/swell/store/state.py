"""The state of a slot: the machines of its services, and what makes every command apply once.

A machine turns bodies of commands into results. It must be deterministic: all replicas of a slot
apply the same payloads in the same order, and one of them may have loaded another's dump in
between. What a machine refuses with a `SwellError` is a result like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Protocol, runtime_checkable

from swell.errors import SwellError, WireError
from swell.store import payload as payloads
from swell.store.messages import Status
from swell.store.once import TOO_LONG, Once, opened_s
from swell.store.parts import Parts
from swell.store.payload import Command

RESULTS_BYTES_MAX = 16 * 1024
"""Longer results are not kept: a retry hears that the outcome is unknown. That of the longest step
of configurations fits."""

RESULTS_MAX = 8192
"""Results kept for one session; the oldest are given up, whatever it still waits for."""

EXPIRED = b"session-expired"
"""With `Status.UNKNOWN`: the session is behind the horizon. A command that was sent only once
was not executed."""

COPIED_BYTES_MAX = 1024 * 1024
"""A longer image is in pieces."""

FORMAT = 1

_top = Struct(">BIB")
_service = Struct(">BQ")
_DONE, _REFUSED = Status.DONE, Status.REFUSED
_statuses = tuple(Status)
_marks = tuple(bytes([status]) for status in Status)

Outcome = tuple[Status, bytes]


class NotExecutedError(SwellError):
    """A machine could not execute a command and changed nothing; sent again, it may."""


class Machine(Protocol):
    """One service's part of a slot. `apply` and `query` raise `SwellError` for what they refuse
    and nothing else; `query` changes nothing."""

    def apply(self, body: bytes) -> bytes: ...

    def query(self, body: bytes) -> bytes: ...

    def dump(self) -> bytes: ...

    def load(self, data: bytes) -> None: ...


@runtime_checkable
class Parted(Protocol):
    """A machine that may be long, and gives its dump in pieces that are its own."""

    def dump_parts(self) -> list[bytes]: ...


class SlotState:
    """What a replica has applied of a slot's log."""

    __slots__ = ("_machines", "_once", "_results_bytes_max", "_services")

    def __init__(
        self,
        services: Mapping[int, Callable[[], Machine]],
        results_bytes_max: int = RESULTS_BYTES_MAX,
    ) -> None:
        self._services = services
        self._machines = self._new_machines()
        self._once = Once()
        self._results_bytes_max = results_bytes_max

    def _new_machines(self) -> dict[int, Machine]:
        return {number: self._services[number]() for number in sorted(self._services)}

    @property
    def sessions(self) -> int:
        """How many sessions are remembered."""
        return len(self._once.sessions)

    @property
    def horizon_s(self) -> int:
        return self._once.horizon_s

    @property
    def oldest_s(self) -> int:
        """When the oldest session that is remembered was opened; far ahead if there is none."""
        return opened_s(min(self._once.sessions)) if self._once.sessions else 1 << 62

    @property
    def newest_s(self) -> int:
        return opened_s(max(self._once.sessions)) if self._once.sessions else 0

    def horizon_keeping(self, sessions_max: int) -> int:
        """The horizon that an `expire` entry must carry to leave at most so many sessions."""
        return self._once.horizon_keeping(sessions_max)

    def machine(self, service: int) -> Machine | None:
        return self._machines.get(service)

    def is_known(self, session: int, number: int) -> bool:
        """Whether a command was executed, or may have been."""
        return self._once.is_expired(session) or self._once.has(session, number)

    def apply(self, data: bytes, at: int = 0) -> Outcome:
        """Apply one committed payload, which begins at `at`; the same outcome on every replica."""
        try:
            what = payloads.decode(data, at)
        except WireError as error:
            return _REFUSED, str(error).encode()
        if isinstance(what, tuple):
            return self._command(what)
        if what is not None:
            self._once.expire(what)
        return _DONE, b""

    def _command(self, command: Command) -> Outcome:
        session, number, lowest, service, body = command
        known = self._once.of(session, lowest)
        if known is None:
            return Status.UNKNOWN, EXPIRED
        results = known.results
        kept = results.get(number)
        if kept is not None:
            return _unpacked(kept)
        if number < known.lowest:
            return Status.UNKNOWN, b""
        if lowest > known.lowest:
            known.rise(min(lowest, number))
        machine = self._machines.get(service)
        if machine is None:
            status, result = _REFUSED, _no_service(service)
        else:
            try:
                status, result = _DONE, machine.apply(body)
            except NotExecutedError as error:
                return Status.BUSY, str(error).encode()  # its number stays free
            except SwellError as error:
                status, result = _REFUSED, str(error).encode()
        fits = len(result) <= self._results_bytes_max
        results[number] = _marks[status] + result if fits else TOO_LONG
        if len(results) > RESULTS_MAX:
            known.rise(next(iter(results)) + 1)
        return status, result

    def query(self, service: int, body: bytes) -> Outcome:
        """Answer from the applied state, changing nothing."""
        machine = self._machines.get(service)
        if machine is None:
            return Status.REFUSED, _no_service(service)
        try:
            return Status.DONE, machine.query(body)
        except SwellError as error:
            return Status.REFUSED, str(error).encode()

    # Bytes.

    def dump(self) -> bytes:
        """All of it, as of now."""
        return bytes(self._parts())

    def image(self) -> bytes | Parts:
        """The same; a long one in pieces, which takes no copying."""
        parts = self._parts()
        return bytes(parts) if len(parts) <= COPIED_BYTES_MAX else parts

    def _parts(self) -> Parts:
        once = self._once.dump()
        pieces = [_top.pack(FORMAT, len(once), len(self._machines)), once]
        for number, machine in self._machines.items():
            dumped = machine.dump_parts() if isinstance(machine, Parted) else [machine.dump()]
            pieces.append(_service.pack(number, sum(map(len, dumped))))
            pieces += dumped
        return Parts(pieces)

    def load(self, data: bytes) -> None:
        """Become what was dumped. `WireError`, and nothing changed: the bytes are no dump, or one
        with services that this node does not know."""
        if len(data) < _top.size:
            raise WireError("bad-state", f"{len(data)} bytes")
        version, length, count = _top.unpack_from(data)
        if version != FORMAT:
            raise WireError("bad-state", f"format {version} is not known here")
        at = _top.size + length
        once, machines = Once(), self._new_machines()
        once.load(data[_top.size : at])
        for _ in range(count):
            if at + _service.size > len(data):
                raise WireError("bad-state", "a service is cut off")
            number, length = _service.unpack_from(data, at)
            at += _service.size + length
            machine = machines.get(number)
            if machine is None:
                raise WireError("bad-state", f"service {number} is not known here")
            machine.load(data[at - length : at])
        if at != len(data):
            raise WireError("bad-state", f"{len(data)} bytes, announced were {at}")
        self._once, self._machines = once, machines


def _unpacked(kept: bytes) -> Outcome:
    if kept == TOO_LONG:
        return Status.UNKNOWN, b""
    return _statuses[kept[0]], kept[1:]


def _no_service(service: int) -> bytes:
    return f"service {service} is not known to this slot: use a newer node".encode()
