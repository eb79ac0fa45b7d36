"""Values that arrive in pieces, ahead of the step that publishes them (RIP-18).

Staged bytes are replicated state and bounded. An upload that nobody goes on with is given up for
another, the one that rests for the longest time first; while all go on, others have to wait: they
would only make each other begin again. Pieces are cut into leaves and digested as they come, so
that publishing a value of any length costs little more than its tree.

The bounds are constants, not settings, and the time is the one in the log: replicas must give up
the same uploads.
"""

from __future__ import annotations

from swell.config.chunking import CHUNK_BYTES, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN
from swell.config.content import Content
from swell.config.tree import Leaf, grown
from swell.errors import SwellError
from swell.store.state import NotExecutedError

UPLOADS_MAX = 4
UPLOADED_BYTES_MAX = 256 * 1024 * 1024
"""Of one slot."""

REST_US = 30_000_000
"""An upload without a new piece for so long may be given up."""


class UploadError(SwellError):
    """A piece or a publication that does not fit what is staged."""


class Upload:
    """The pieces of one value so far. `tail` is what is not yet a leaf."""

    __slots__ = ("leaves", "size", "tail", "touched_us")

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.tail = b""
        self.size = 0
        self.touched_us = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        tail = self.tail + data
        at = 0
        if self.size > CHUNK_BYTES_MAX:  # A shorter content is one leaf.
            while len(tail) - at >= CHUNK_BYTES + CHUNK_BYTES_MIN:
                leaf = Leaf(tail[at : at + CHUNK_BYTES])
                assert leaf.digest  # Computed now, a piece at a time.
                self.leaves.append(leaf)
                at += CHUNK_BYTES
        self.tail = tail[at:]

    def content(self) -> Content:
        """What `Content.of` makes of all bytes."""
        if not self.leaves:
            return Content.of(self.tail)
        return Content(grown([*self.leaves, Leaf(self.tail)]))


Name = tuple[str, bytes]
"""Application and upload id."""


class Uploads:
    """All of one slot, the one that was touched last at the end."""

    __slots__ = ("items", "size")

    def __init__(self) -> None:
        self.items: dict[Name, Upload] = {}
        self.size = 0

    def get(self, application: str, upload: bytes) -> Upload | None:
        return self.items.get((application, upload))

    def stage(self, application: str, upload: bytes, offset: int, data: bytes, wall_us: int) -> int:
        """Add a piece; one that is there already, or is empty, changes nothing. The bytes staged
        so far."""
        name = (application, upload)
        item = self.items.get(name)
        size = item.size if item is not None else 0
        if offset + len(data) <= size:
            return size
        if offset != size:
            raise UploadError(
                f"upload {upload.hex()} has {size} bytes and the piece begins at {offset}:"
                f" go on at {size}"
            )
        if size + len(data) > UPLOADED_BYTES_MAX:
            raise UploadError(f"an upload has at most {UPLOADED_BYTES_MAX} bytes")
        for other in self._in_the_way(name, len(data), wall_us):
            self.drop(*other)
        item = self.items.pop(name, None) or Upload()
        self.items[name] = item
        item.add(data)
        item.touched_us = wall_us
        self.size += len(data)
        return item.size

    def has_room(self, application: str, upload: bytes, size: int, wall_us: int) -> bool:
        """Whether so many more bytes of an upload can be taken now."""
        try:
            self._in_the_way((application, upload), size, wall_us)
        except NotExecutedError:
            return False
        return True

    def _in_the_way(self, name: Name, size: int, wall_us: int) -> list[Name]:
        """The uploads to be given up for so many more bytes of one."""
        count, total = len(self.items) + (name not in self.items), self.size + size
        found: list[Name] = []
        for other, item in self.items.items():
            if count <= UPLOADS_MAX and total <= UPLOADED_BYTES_MAX:
                break
            if other != name:
                if wall_us - item.touched_us < REST_US:
                    raise NotExecutedError(f"{count - 1} other uploads are under way: wait")
                found.append(other)
                count, total = count - 1, total - item.size
        return found

    def finished(self, application: str, upload: bytes, length: int, digest: bytes) -> Content:
        """The content of a finished upload, which stays; `UploadError` if it is not what the
        client says."""
        item = self.get(application, upload)
        if item is None:
            raise UploadError(f"upload {upload.hex()} is not here (any more): stage it again")
        if item.size != length:
            raise UploadError(
                f"upload {upload.hex()} has {item.size} of {length} bytes: stage the rest"
            )
        content = item.content()
        if content.digest != digest:
            raise UploadError(f"upload {upload.hex()} has another digest: stage it again")
        return content

    def drop(self, application: str, upload: bytes) -> None:
        item = self.items.pop((application, upload), None)
        if item is not None:
            self.size -= item.size
