"""Values that arrive in pieces, ahead of the step that publishes them (RIP-18).

Staged bytes are replicated state and bounded: whoever was not touched for the longest time is given
up for a newer upload. Pieces are cut into leaves and digested as they come, so that publishing a
value of any length costs little more than its tree.

The bounds are constants, not settings: replicas must give up the same uploads.
"""

from __future__ import annotations

from swell.config.chunking import CHUNK_BYTES, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN
from swell.config.content import Content
from swell.config.tree import Leaf, grown
from swell.errors import SwellError

UPLOADS_MAX = 4
UPLOADED_BYTES_MAX = 256 * 1024 * 1024
"""Of one slot."""


class UploadError(SwellError):
    """A piece or a publication that does not fit what is staged."""


class Upload:
    """The pieces of one value so far. `tail` is what is not yet a leaf."""

    __slots__ = ("leaves", "size", "tail")

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.tail = b""
        self.size = 0

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

    def stage(self, application: str, upload: bytes, offset: int, data: bytes) -> int:
        """Add a piece; a piece that is there already changes nothing. The bytes staged so far."""
        name = (application, upload)
        item = self.items.get(name)
        size = item.size if item is not None else 0
        if offset + len(data) <= size and offset < size:
            return size
        if offset != size:
            raise UploadError(
                f"upload {upload.hex()} has {size} bytes and the piece begins at {offset}:"
                f" go on at {size}"
            )
        if size + len(data) > UPLOADED_BYTES_MAX:
            raise UploadError(f"an upload has at most {UPLOADED_BYTES_MAX} bytes")
        if item is None:
            item = Upload()
        else:
            del self.items[name]
        self.items[name] = item
        item.add(data)
        self.size += len(data)
        while len(self.items) > UPLOADS_MAX or self.size > UPLOADED_BYTES_MAX:
            self.size -= self.items.pop(next(iter(self.items))).size
        return item.size

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
