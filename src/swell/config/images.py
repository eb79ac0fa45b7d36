"""What a machine is as bytes: a head of msgpack, then the chunks of all contents in its order.

    head length u32 | head | chunks

Contents are written and read chunk by chunk, so that they have the same leaves afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError

import msgspec

from swell.config.application import Application
from swell.config.configuration import Configuration, Present
from swell.config.content import Content
from swell.config.history import Past
from swell.config.operations import Options
from swell.config.tree import Leaf
from swell.config.uploads import Upload, Uploads
from swell.errors import WireError
from swell.wire.codec import Message

FORMAT = 1

_head = Struct(">I")

Lengths = tuple[int, ...]
"""Of the chunks of a content."""


class _Past(Message, frozen=True):
    version: int
    id: bytes
    base: bytes
    step: int
    kind: int
    length: int
    forward: bytes
    back: bytes | Lengths | None
    change_bytes: int
    author: str
    wall_us: int


class _Configuration(Message, frozen=True):
    name: str
    version: int
    id: bytes
    content: Lengths | None
    base: bytes
    step: int
    author: str
    wall_us: int
    from_step: int
    history: tuple[_Past, ...]


class _Application(Message, frozen=True):
    name: str
    step: int
    options: Options
    first_version: int
    forgotten_step: int
    configurations: tuple[_Configuration, ...]


class _Upload(Message, frozen=True):
    application: str
    upload: bytes
    leaves: Lengths
    tail: bytes


class _Image(Message, frozen=True):
    format: int
    applications: tuple[_Application, ...]
    uploads: tuple[_Upload, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Image).decode


class _Writer:
    """Collects chunks while the head is made."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def chunks(self, data: Iterable[bytes]) -> Lengths:
        start = len(self.parts)
        self.parts += data
        return tuple(map(len, self.parts[start:]))

    def past(self, past: Past) -> _Past:
        back = self.chunks(past.back.chunks()) if isinstance(past.back, Content) else past.back
        return _Past(*past._replace(back=back))  # type: ignore[arg-type]

    def configuration(self, item: Configuration) -> _Configuration:
        version, id_, content = item.present
        return _Configuration(
            item.name, version, id_, None if content is None else self.chunks(content.chunks()),
            item.base, item.step, item.author, item.wall_us, item.history.from_step,
            tuple([self.past(past) for past in item.history.versions]),
        )  # fmt: skip

    def application(self, item: Application) -> _Application:
        return _Application(
            item.name, item.step, item.options, item.first_version, item.forgotten_step,
            tuple([self.configuration(each) for each in item.configurations.values()]),
        )  # fmt: skip


def dump(applications: dict[str, Application], uploads: Uploads) -> bytes:
    writer = _Writer()
    image = _Image(
        FORMAT,
        tuple([writer.application(item) for item in applications.values()]),
        tuple(
            _Upload(*name, writer.chunks([leaf.data for leaf in item.leaves]), item.tail)
            for name, item in uploads.items.items()
        ),
    )
    head = _encode(image)
    return b"".join((_head.pack(len(head)), head, *writer.parts))


class _Reader:
    """Hands out chunks in the order in which they were collected."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def chunks(self, lengths: Lengths) -> list[bytes]:
        found = []
        for length in lengths:
            found.append(self.data[self.at : self.at + length])
            self.at += length
        if self.at > len(self.data):
            raise WireError("bad-state", "configurations: a content is cut off")
        return found

    def past(self, image: _Past) -> Past:
        fields = list(msgspec.structs.astuple(image))
        if isinstance(image.back, tuple):
            fields[7] = Content.from_chunks(self.chunks(image.back))
        return Past(*fields)

    def configuration(self, image: _Configuration) -> Configuration:
        content = None
        if image.content is not None:
            content = Content.from_chunks(self.chunks(image.content))
        item = Configuration(image.name, Present(image.version, image.id, content))
        item.base, item.step = image.base, image.step
        item.author, item.wall_us = image.author, image.wall_us
        item.history.from_step = image.from_step
        for past in image.history:
            item.history.add(self.past(past))
        return item

    def application(self, image: _Application) -> Application:
        item = Application(image.name)
        item.step, item.options = image.step, image.options
        item.first_version, item.forgotten_step = image.first_version, image.forgotten_step
        for configuration in image.configurations:
            item.restore(self.configuration(configuration))
        return item

    def upload(self, image: _Upload) -> Upload:
        item = Upload()
        item.leaves = [Leaf(chunk) for chunk in self.chunks(image.leaves)]
        item.tail = image.tail
        item.size = sum(image.leaves) + len(image.tail)
        return item


def load(data: bytes) -> tuple[dict[str, Application], Uploads]:
    """What was dumped; `WireError` if these bytes are no dump."""
    try:
        (length,) = _head.unpack_from(data)
        image = _decode(memoryview(data)[_head.size : _head.size + length])
    except (StructError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError("bad-state", f"configurations: {error}") from None
    if image.format != FORMAT:
        raise WireError("bad-state", f"configurations: format {image.format} is not known here")
    reader = _Reader(data, _head.size + length)
    applications = {item.name: reader.application(item) for item in image.applications}
    uploads = Uploads()
    for item in image.uploads:
        upload = uploads.items[item.application, item.upload] = reader.upload(item)
        uploads.size += upload.size
    if reader.at != len(data):
        raise WireError("bad-state", f"configurations: {len(data) - reader.at} bytes too many")
    return applications, uploads
