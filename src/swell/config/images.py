"""What a machine is as bytes: a head of msgpack, then the chunks of all contents.

    head length u32 | head | chunks

Contents are written and read chunk by chunk, so that they have the same leaves afterwards. Chunks
of long contents that are equal are written once, and shared by all that have them when they are
read: a value and the versions before it often have most of them in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError

import msgspec

from swell.config.application import Application
from swell.config.configuration import Configuration, Present
from swell.config.content import Content
from swell.config.gone import Range
from swell.config.history import Past
from swell.config.operations import Options
from swell.config.tree import Leaf
from swell.config.uploads import Name, Upload, Uploads
from swell.errors import WireError
from swell.wire.codec import Message

FORMAT = 1

_head = Struct(">I")

Chunks = tuple[int, ...]
"""Of a content: their places among all chunks."""


class _Past(Message, frozen=True):
    version: int
    id: bytes
    base: bytes
    step: int
    kind: int
    length: int
    forward: bytes
    back: bytes | Chunks | None
    change_bytes: int
    author: str
    wall_us: int


class _Configuration(Message, frozen=True):
    name: str
    version: int
    id: bytes
    content: Chunks | None
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
    gone: tuple[tuple[str, str, int], ...]
    configurations: tuple[_Configuration, ...]


class _Upload(Message, frozen=True):
    application: str
    upload: bytes
    touched_us: int
    leaves: Chunks
    tail: bytes


class _Image(Message, frozen=True):
    format: int
    applications: tuple[_Application, ...]
    uploads: tuple[_Upload, ...]
    lengths: tuple[int, ...]
    """Of all chunks."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Image).decode


class _Writer:
    """Collects chunks while the head is made."""

    __slots__ = ("_places", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self._places: dict[bytes, int] = {}

    def content(self, content: Content) -> Chunks:
        return self.leaves(list(content.leaves()))

    def leaves(self, leaves: Sequence[Leaf]) -> Chunks:
        """Of a short content the digest is not known, and not worth computing."""
        if len(leaves) == 1:
            return (self._add(leaves[0]),)
        places = self._places
        found = []
        for leaf in leaves:
            place = places.get(leaf.digest)
            if place is None:
                place = places[leaf.digest] = self._add(leaf)
            found.append(place)
        return tuple(found)

    def _add(self, leaf: Leaf) -> int:
        self.parts.append(leaf.data)
        return len(self.parts) - 1

    def past(self, past: Past) -> _Past:
        back = self.content(past.back) if isinstance(past.back, Content) else past.back
        return _Past(*past._replace(back=back))  # type: ignore[arg-type]

    def configuration(self, item: Configuration) -> _Configuration:
        version, id_, content = item.present
        return _Configuration(
            item.name, version, id_, None if content is None else self.content(content),
            item.base, item.step, item.author, item.wall_us, item.history.from_step,
            tuple([self.past(past) for past in item.history.versions]),
        )  # fmt: skip

    def upload(self, name: Name, item: Upload) -> _Upload:
        return _Upload(*name, item.touched_us, self.leaves(item.leaves), item.tail)

    def application(self, item: Application) -> _Application:
        return _Application(
            item.name, item.step, item.options, item.first_version, tuple(item.gone.ranges),
            tuple([self.configuration(each) for each in item.configurations.values()]),
        )  # fmt: skip


def dump(applications: dict[str, Application], uploads: Uploads) -> list[bytes]:
    """In pieces: those of long contents are the contents' own."""
    writer = _Writer()
    made = tuple([writer.application(item) for item in applications.values()])
    staged = tuple([writer.upload(name, item) for name, item in uploads.items.items()])
    head = _encode(_Image(FORMAT, made, staged, tuple(map(len, writer.parts))))
    return [_head.pack(len(head)), head, *writer.parts]


class _Reader:
    """Hands out the chunks."""

    __slots__ = ("_leaves",)

    def __init__(self, data: bytes, at: int, lengths: Sequence[int]) -> None:
        if sum(lengths) != len(data) - at:
            raise WireError("bad-state", f"configurations: {len(data) - at} bytes of chunks")
        self._leaves: list[Leaf] = []
        for length in lengths:
            self._leaves.append(Leaf(data[at : at + length]))
            at += length

    def leaves(self, chunks: Chunks) -> list[Leaf]:
        if not all(0 <= place < len(self._leaves) for place in chunks):
            raise WireError("bad-state", "configurations: a content is cut off")
        return [self._leaves[place] for place in chunks]

    def content(self, chunks: Chunks) -> Content:
        return Content.from_leaves(self.leaves(chunks))

    def past(self, image: _Past) -> Past:
        fields = list(msgspec.structs.astuple(image))
        if isinstance(image.back, tuple):
            fields[7] = self.content(image.back)
        return Past(*fields)

    def configuration(self, image: _Configuration) -> Configuration:
        content = None
        if image.content is not None:
            content = self.content(image.content)
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
        item.first_version = image.first_version
        item.gone.restore([Range(*each) for each in image.gone])
        for configuration in image.configurations:
            item.restore(self.configuration(configuration))
        return item

    def upload(self, image: _Upload) -> Upload:
        item = Upload()
        item.touched_us = image.touched_us
        item.leaves = self.leaves(image.leaves)
        item.tail = image.tail
        item.size = sum([leaf.length for leaf in item.leaves]) + len(image.tail)
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
    reader = _Reader(data, _head.size + length, image.lengths)
    applications = {item.name: reader.application(item) for item in image.applications}
    uploads = Uploads()
    for item in image.uploads:
        upload = uploads.items[item.application, item.upload] = reader.upload(item)
        uploads.size += upload.size
    return applications, uploads
