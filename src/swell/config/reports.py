"""Questions about delivery and their answers, as bytes: who has a step, who has a configuration.

Service 3 of the store's gateway, answered by the primary of the application's slot beside the log.
Body of a question: operation u8, then a msgpack array. Body of an answer: a msgpack array.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from swell.access.grants import Right
from swell.config.access import outcome_refusal
from swell.config.messages import Level, Name, Step
from swell.config.names import check_application, place
from swell.errors import WireError
from swell.overlay.sessions import Access
from swell.store.messages import Read
from swell.store.request import Request
from swell.wire.codec import Message

REPORT_SERVICE = 3
"""The number of this service in requests."""

NAMES_MAX = 4096
ROWS_MAX = 1024

T = TypeVar("T")


class Operation(IntEnum):
    AWAIT = 1
    STATUS = 2


class Await(Message, frozen=True):
    """Answer when every interested container has reached `level` (a `Level`) with this step, or
    has failed; at the latest shortly before the deadline. At most `names_max` names per class."""

    application: Name
    step: Step
    level: Annotated[int, Meta(ge=1, le=2)] = int(Level.APPLIED)
    names_max: Annotated[int, Meta(ge=0, le=NAMES_MAX)] = 100


class Named(Message, frozen=True):
    """A container in an answer. `since_s`: for how long it has been offline."""

    container: str
    reason: str = ""
    since_s: float = 0.0


class Tally(Message, frozen=True):
    """How many containers are in a class, and the names of some of them."""

    count: int = 0
    names: tuple[Named, ...] = ()


class Awaited(Message, frozen=True):
    """`complete`: nobody is waited for any more. Every interested container is in one class."""

    complete: bool
    applied: Tally = Tally()
    delivered: Tally = Tally()
    """Delivered and not applied."""
    rejected: Tally = Tally()
    silent: Tally = Tally()
    failed: Tally = Tally()
    offline: Tally = Tally()

    @property
    def interested(self) -> int:
        classes = (self.applied, self.delivered, self.rejected)
        return sum(t.count for t in (*classes, self.silent, self.failed, self.offline))


class StatusOf(Message, frozen=True):
    """Every container that is interested in a configuration; without a name, in anything of the
    application. The rows behind `after`, in order of the containers' names."""

    application: Name
    name: Annotated[str, Meta(max_length=512)] = ""
    after: Annotated[str, Meta(max_length=512)] = ""
    limit: Annotated[int, Meta(ge=1, le=ROWS_MAX)] = ROWS_MAX


class State(IntEnum):
    """Of a container, as far as a feed goes."""

    IN_STEP = 0
    BEHIND = 1
    FAILED = 2
    OFFLINE = 3


class StatusRow(Message, frozen=True):
    """`version`: of the configuration, that is applied there; 0 if unknown. `since_s`: how long it
    has had what it has, or has been offline. `relay`: who brought it, empty for the primary."""

    container: str
    owner: str
    site: str
    state: int
    version: int
    delivered: int
    applied: int
    since_s: float
    relay: str
    score: float
    avoided: bool
    """It is not picked as a relay at the moment: it failed or lied."""
    reason: str
    """Why it has failed, or has rejected something it was sent."""


class StatusReport(Message, frozen=True):
    """`step`, `version`: the present ones."""

    step: int
    version: int
    rows: tuple[StatusRow, ...]
    more: bool = False


Question = Await | StatusOf

_OPERATIONS: dict[type, Operation] = {Await: Operation.AWAIT, StatusOf: Operation.STATUS}
_encode = msgspec.msgpack.Encoder().encode
_questions: dict[int, msgspec.msgpack.Decoder[Question]] = {
    int(Operation.AWAIT): msgspec.msgpack.Decoder(Await),
    int(Operation.STATUS): msgspec.msgpack.Decoder(StatusOf),
}
_awaited = msgspec.msgpack.Decoder(Awaited)
_status = msgspec.msgpack.Decoder(StatusReport)


def encode(question: Question) -> bytes:
    return b"%c%b" % (_OPERATIONS[type(question)], _encode(question))


def decode(body: bytes) -> Question:
    """The question in these bytes; `WireError` if there is none."""
    decoder = _questions.get(body[0]) if body else None
    if decoder is None:
        raise WireError("bad-body", f"{body[:1]!r} is no question about delivery")
    return _read(decoder, memoryview(body)[1:])


def request(question: Question) -> Request:
    """Ready to be sent to the store."""
    application = check_application(question.application, reserved=True)
    return Request(place(application), Read.LINEARIZABLE, encode(question))


def encode_answer(answer: Awaited | StatusReport) -> bytes:
    return _encode(answer)


def awaited_of(result: bytes) -> Awaited:
    return _read(_awaited, result)


def status_of(result: bytes) -> StatusReport:
    return _read(_status, result)


def _read(decoder: msgspec.msgpack.Decoder[T], data: bytes | memoryview) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise WireError("bad-body", str(error)) from None


def refusal(access: Access, body: bytes) -> str:
    """Why a session may not ask this; empty if it may."""
    try:
        question = decode(body)
    except WireError as error:
        return str(error)
    if isinstance(question, Await):
        return outcome_refusal(access, question.application)
    return access.refusal(Right.READ, question.application, question.name)
