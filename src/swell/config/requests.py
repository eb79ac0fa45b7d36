"""Requests about configurations, ready to be sent to the store, and readers of their results.

Whatever a request would be refused for and that can be known here is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec

from swell.config import operations as ops
from swell.config.edits import WHOLE_BYTES_MAX, Edit, Whole, check_edit
from swell.config.names import check_application, place
from swell.config.versions import NO_VERSION
from swell.errors import TooLargeError, WireError
from swell.store.messages import Read
from swell.store.request import Request
from swell.wire.codec import Message

T = TypeVar("T")


def _command(application: str, body: Message) -> Request:
    return Request(place(check_application(application)), Read.COMMAND, ops.encode(body))


def _query(application: str, body: Message, stale: bool) -> Request:
    """What is reserved may be read."""
    place_of = place(check_application(application, reserved=True))
    return Request(place_of, Read.STALE if stale else Read.LINEARIZABLE, ops.encode(body))


def publish(application: str, edits: Sequence[Edit], author: str = "", wall_us: int = 0) -> Request:
    """One step: all of the edits or none."""
    if not 0 < len(edits) <= ops.EDITS_MAX:
        raise TooLargeError(f"a step has {len(edits)} edits, allowed are 1 to {ops.EDITS_MAX}")
    for edit in edits:
        check_edit(edit)
        if isinstance(edit, Whole) and len(edit.data) > WHOLE_BYTES_MAX:
            raise TooLargeError(
                f"{edit.name} has {len(edit.data)} bytes, at once allowed are {WHOLE_BYTES_MAX}:"
                " stage it in pieces"
            )
    return _command(application, ops.Publish(application, tuple(edits), author, wall_us))


def stage(application: str, upload: bytes, offset: int, data: bytes) -> Request:
    return _command(application, ops.Stage(application, upload, offset, data))


def set_options(
    application: str,
    relaying: bool | None = None,
    versions_kept: int | None = None,
    protect: float | None = None,
) -> Request:
    return _command(application, ops.SetOptions(application, relaying, versions_kept, protect))


def get(
    application: str, name: str, version: int = 0, data: bool = True, stale: bool = False
) -> Request:
    return _query(application, ops.Get(application, name, version, data), stale)


def read(
    application: str, name: str, version: int, offset: int, length: int, stale: bool = False
) -> Request:
    return _query(application, ops.ReadRange(application, name, version, offset, length), stale)


def leaves(
    application: str, name: str, version: int, start: int = 0, stale: bool = False
) -> Request:
    return _query(application, ops.GetLeaves(application, name, version, start), stale)


def list_names(
    application: str,
    prefix: str = "",
    after: str = "",
    limit: int = ops.ROWS_MAX,
    stale: bool = False,
) -> Request:
    return _query(application, ops.ListNames(application, prefix, after, limit), stale)


def history(application: str, name: str, stale: bool = False) -> Request:
    return _query(application, ops.GetHistory(application, name), stale)


def list_applications(
    slot: int,
    after: str = "",
    limit: int = ops.ROWS_MAX,
    stale: bool = False,
    services: bool = False,
) -> Request:
    """The applications of one slot; or only those that have instances."""
    kind = Read.STALE if stale else Read.LINEARIZABLE
    return Request(slot, kind, ops.encode(ops.ListApplications(after, limit, services)))


# Results.

_published = msgspec.msgpack.Decoder(ops.Published)
_staged = msgspec.msgpack.Decoder(int)
_options = msgspec.msgpack.Decoder(ops.Options)
_got: msgspec.msgpack.Decoder[ops.Got | None] = msgspec.msgpack.Decoder(ops.Got | None)
_leaves = msgspec.msgpack.Decoder(ops.LeafPage)
_rows = msgspec.msgpack.Decoder(tuple[ops.Row, ...])
_history = msgspec.msgpack.Decoder(tuple[ops.Kept, ...])
_applications = msgspec.msgpack.Decoder(tuple[ops.ApplicationRow, ...])


def published_of(result: bytes) -> ops.Published:
    return _read(_published, result)


def made_of(edits: Sequence[Edit], published: ops.Published) -> dict[str, ops.Made]:
    """What a step made, by the names of its configurations in their order."""
    names = dict.fromkeys(edit.name for edit in edits)
    if len(names) != len(published.made):
        raise WireError("bad-result", f"{len(published.made)} of {len(names)} configurations")
    return dict(zip(names, published.made, strict=True))


class Conflict(NamedTuple):
    """Why a condition does not hold: what the configuration is at present. Version 0 and
    `NO_VERSION`: nothing, and it never was."""

    name: str
    version: int
    id: bytes
    deleted: bool
    sentence: str


_present = re.compile(
    r" (?:does not exist|is (at|deleted with) version (\d+) \(([0-9a-f]{40})\)),"
    r" which is not what was expected"
)


def conflict_of(refusal: str, application: str) -> Conflict | None:
    """What the sentence of a refused `publish` says if a condition did not hold, else None."""
    if not refusal.startswith(ops.CONFLICT):
        return None
    sentence = refusal.removeprefix(ops.CONFLICT)
    matches = list(_present.finditer(sentence))
    if not matches:
        return None
    found = matches[-1]  # The last: a name may read like anything.
    name = sentence[: found.start()].removesuffix(f" of {application}")
    state, version, id = found.groups()
    if state is None:
        return Conflict(name, 0, NO_VERSION, True, sentence)
    return Conflict(name, int(version), bytes.fromhex(id), state != "at", sentence)


def staged_of(result: bytes) -> int:
    """Bytes of the upload that are there."""
    return _read(_staged, result)


def options_of(result: bytes) -> ops.Options:
    return _read(_options, result)


def got_of(result: bytes) -> ops.Got | None:
    """None: there is no such configuration and never was, as far as is remembered."""
    return _read(_got, result)


def leaves_of(result: bytes) -> ops.LeafPage:
    return _read(_leaves, result)


def names_of(result: bytes) -> tuple[ops.Row, ...]:
    return _read(_rows, result)


def history_of(result: bytes) -> tuple[ops.Kept, ...]:
    """The newest version last."""
    return _read(_history, result)


def applications_of(result: bytes) -> tuple[ops.ApplicationRow, ...]:
    return _read(_applications, result)


def _read(decoder: msgspec.msgpack.Decoder[T], result: bytes) -> T:
    try:
        return decoder.decode(result)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError("bad-result", str(error)) from None
