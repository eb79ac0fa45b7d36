"""Splits the bytes of a connection into whole frames.

A connection carries, in each direction, the magic and then frames (see `swell.wire.codec`). The
splitter takes the bytes in whatever pieces they come and gives back every frame once it is whole,
header included, so that it can be passed on as it came. It never looks into a body.

Invariants:

- What comes out does not depend on how the bytes were cut into pieces. In particular the frames
  ahead of a broken one are still given out; then `error` is set and nothing follows.
- Memory is bounded by the pieces fed plus one frame, and each byte is copied a bounded number of
  times, however small the pieces are.
"""

from __future__ import annotations

from struct import Struct, iter_unpack

from swell.errors import WireError
from swell.wire.limits import FRAME_BYTES_MAX, MAGIC

LENGTH_BYTES = 4
LENGTH_MIN = 2
"""The type and flags octets; a body may be empty."""

RUN_BYTES_MIN = 1024
RUN_FRAMES_MIN = 8
"""Shorter pieces and fewer frames are cut one by one."""

_length_at = Struct(">I").unpack_from


class FrameSplitter:
    """Feed it bytes; it returns the frames they completed. One per direction and connection."""

    __slots__ = ("_missing", "_partial", "error", "greeted")

    def __init__(self, greeted: bool = False) -> None:
        self.greeted = greeted
        """True once the peer's magic was seen."""
        self.error: WireError | None = None
        """Set when the peer broke the protocol; the connection is of no use any more."""
        self._partial = bytearray()
        self._missing = 0
        """Bytes that the partial frame still needs; 0 while its length word is not whole."""

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame (or of the magic) that is not whole yet."""
        return len(self._partial)

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next piece of the stream and return the frames it completed, oldest first."""
        if self._partial or not self.greeted or self.error is not None:
            return self._resume(data)
        size = len(data)
        if LENGTH_BYTES + LENGTH_MIN <= size <= LENGTH_BYTES + FRAME_BYTES_MAX:
            (length,) = _length_at(data)
            if length == size - LENGTH_BYTES:  # one whole frame: as it is
                return [data]
        return self._split(data, 0, [])

    def _split(self, data: bytes, position: int, frames: list[bytes]) -> list[bytes]:
        """Cut `data` from `position`, where a frame begins; keep what is not whole."""
        size = len(data)
        if size - position >= RUN_BYTES_MIN:
            position = _cut_run(data, position, frames)
        last = size - LENGTH_BYTES
        append = frames.append
        while position <= last:
            (length,) = _length_at(data, position)
            end = position + LENGTH_BYTES + length
            if length < LENGTH_MIN or length > FRAME_BYTES_MAX:
                self._refuse_length(length)
                return frames
            if end > size:
                self._missing = end - size
                break
            append(data[position:end])
            position = end
        if position < size:
            self._partial += data[position:]
        return frames

    def _resume(self, data: bytes) -> list[bytes]:
        """Continue the magic or the frame that the pieces before left unfinished."""
        if self.error is not None:
            return []
        if len(data) < self._missing:
            self._partial += data
            self._missing -= len(data)
            return []
        if self._missing:
            position = self._missing
            self._partial += data[:position]
            frames = [bytes(self._partial)]
            self._forget_partial()
            return self._split(data, position, frames)
        # Fewer bytes than a magic or a length word are held here: joining them is cheap.
        data = bytes(self._partial) + data
        self._forget_partial()
        if self.greeted:
            return self._split(data, 0, [])
        return self._greet(data)

    def _greet(self, data: bytes) -> list[bytes]:
        """Compare with the magic as far as it is there, so that a stranger is refused at once."""
        if data[: len(MAGIC)] != MAGIC[: len(data)]:
            self.error = WireError("wrong-magic", f"got {data[: len(MAGIC)]!r}")
            return []
        if len(data) < len(MAGIC):
            self._partial += data
            return []
        self.greeted = True
        return self._split(data, len(MAGIC), [])

    def _refuse_length(self, length: int) -> None:
        reason = "frame-too-short" if length < LENGTH_MIN else "frame-too-long"
        limits = f"{LENGTH_MIN} to {FRAME_BYTES_MAX}"
        self.error = WireError(reason, f"{length} bytes announced, allowed are {limits}")

    def _forget_partial(self) -> None:
        self._partial = bytearray()
        self._missing = 0


def _cut_run(data: bytes, position: int, frames: list[bytes]) -> int:
    """If a run of frames of one length begins at `position` and fills `data`, cut them all at
    once; where to go on.

    The frames of a busy link often have one length. Whether all length words of the piece are
    equal is seen from four strided slices, and the cutting is then one call instead of a loop.
    """
    length: int = _length_at(data, position)[0]
    size = LENGTH_BYTES + length
    count = (len(data) - position) // size
    if count < RUN_FRAMES_MIN or length < LENGTH_MIN or length > FRAME_BYTES_MAX:
        return position
    end = position + count * size
    for index in range(position + LENGTH_BYTES - 1, position - 1, -1):
        if data[index:end:size].count(data[index]) != count:
            return position
    frames += [cut for (cut,) in iter_unpack(f"{size}s", memoryview(data)[position:end])]
    return end
