"""The frame splitter: whole, byte by byte, cut anywhere, with trailing bytes, broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.wire.codec import frame
from swell.wire.frames import RUN_BYTES_MIN, FrameSplitter
from swell.wire.limits import FRAME_BYTES_MAX, MAGIC

FRAMES = [frame(7, b""), frame(8, b"x" * 300), frame(9, b"\0\0\0\2"), frame(7, b"end", flags=3)]
STREAM = MAGIC + b"".join(FRAMES)


def word(length: int) -> bytes:
    return length.to_bytes(4, "big")


def feed_all(splitter: FrameSplitter, pieces: list[bytes]) -> list[bytes]:
    return [found for piece in pieces for found in splitter.feed(piece)]


def test_whole() -> None:
    splitter = FrameSplitter()
    assert splitter.feed(STREAM) == FRAMES
    assert splitter.greeted
    assert splitter.pending_bytes == 0
    assert splitter.error is None


def test_byte_by_byte() -> None:
    splitter = FrameSplitter()
    assert feed_all(splitter, [STREAM[i : i + 1] for i in range(len(STREAM))]) == FRAMES
    assert splitter.pending_bytes == 0


@pytest.mark.parametrize("cut", range(len(STREAM)))
def test_truncated_at_each_byte(cut: int) -> None:
    splitter = FrameSplitter()
    before = splitter.feed(STREAM[:cut])
    assert before == FRAMES[: len(before)]
    complete = len(MAGIC) + sum(map(len, before)) if splitter.greeted else 0
    assert splitter.pending_bytes == cut - complete
    assert splitter.error is None
    assert before + splitter.feed(STREAM[cut:]) == FRAMES


def test_trailing_bytes_are_kept_as_an_unfinished_frame() -> None:
    splitter = FrameSplitter()
    assert splitter.feed(STREAM + b"\0\0") == FRAMES
    assert splitter.pending_bytes == 2


@pytest.mark.parametrize("length", [0, 1, FRAME_BYTES_MAX + 1, 2**31, 2**32 - 1])
@pytest.mark.parametrize("size", [1, 3, 4096])
def test_lengths_outside_the_limits(length: int, size: int) -> None:
    splitter = FrameSplitter()
    stream = STREAM + word(length) + b"x" * 50 + FRAMES[0]
    pieces = [stream[i : i + size] for i in range(0, len(stream), size)]
    assert feed_all(splitter, pieces) == FRAMES
    assert splitter.error is not None
    assert splitter.error.reason == ("frame-too-short" if length < 2 else "frame-too-long")
    assert splitter.feed(FRAMES[0]) == []


def test_longest_frame_in_small_pieces() -> None:
    longest = frame(1, b"y" * (FRAME_BYTES_MAX - 2))
    splitter = FrameSplitter(greeted=True)
    stream = longest + FRAMES[0]
    pieces = [stream[i : i + 1000] for i in range(0, len(stream), 1000)]
    assert feed_all(splitter, pieces) == [longest, FRAMES[0]]


@pytest.mark.parametrize(
    "start", [b"\0", b"GET / HTTP/1.1\r\n", MAGIC[:-2] + b"2\n", b"SWELK", STREAM[1:]]
)
def test_wrong_magic_is_seen_at_its_first_wrong_byte(start: bytes) -> None:
    splitter = FrameSplitter()
    wrong = next(i for i in range(len(start)) if start[i] != MAGIC[i])
    assert splitter.feed(start[:wrong]) == []
    assert splitter.error is None
    assert splitter.feed(start[wrong : wrong + 1]) == []
    assert splitter.error is not None
    assert splitter.error.reason == "wrong-magic"
    assert splitter.feed(STREAM) == []


@pytest.mark.parametrize("broken_at", [None, 0, 7, 8, 49])
def test_long_runs_of_equal_frames(broken_at: int | None) -> None:
    """The fast path for runs must not skip a length word that differs."""
    run = [frame(5, bytes([i]) * 94) for i in range(50)]
    expected = list(run)
    if broken_at is not None:
        run[broken_at] = word(1) + run[broken_at][4:]
        expected = run[:broken_at]
    stream = b"".join(run)
    assert len(stream) >= RUN_BYTES_MIN
    splitter = FrameSplitter(greeted=True)
    assert splitter.feed(stream + b"\0\0") == expected
    assert (splitter.error is None) is (broken_at is None)


bodies = st.one_of(
    st.lists(st.binary(max_size=40), max_size=60),
    st.tuples(st.integers(0, 60), st.binary(max_size=60)).map(lambda t: [t[1]] * t[0]),
)


@given(bodies, st.binary(max_size=8), st.lists(st.integers(1, 2500), max_size=30))
def test_pieces_do_not_matter(parts: list[bytes], tail: bytes, sizes: list[int]) -> None:
    stream = b"".join(frame(3, body) for body in parts) + tail
    whole, cut = FrameSplitter(greeted=True), FrameSplitter(greeted=True)
    one_by_one = feed_all(cut, [bytes([byte]) for byte in stream])
    pieces, position = [], 0
    for size in [*sizes, len(stream) + 1]:
        pieces.append(stream[position : position + size])
        position += size
    assert feed_all(whole, pieces) == one_by_one
    assert (whole.error is None) is (cut.error is None)
    if whole.error is None:
        assert whole.pending_bytes == cut.pending_bytes
        assert b"".join(one_by_one) == stream[: len(stream) - cut.pending_bytes]
