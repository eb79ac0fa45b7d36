"""Packing of long values, and unpacking within limits."""

from __future__ import annotations

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from swell.errors import WireError
from swell.wire.compression import PACKET_BYTES, pack, unpack


@given(st.binary(max_size=5000))
def test_what_was_packed_is_unpacked(data: bytes) -> None:
    assert unpack(pack(data), 5000) == data


def test_only_long_values_are_compressed() -> None:
    assert pack(b"x" * PACKET_BYTES) == b"\0" + b"x" * PACKET_BYTES
    assert len(pack(b"x" * 100_000)) < 100


def test_a_bomb_is_refused_before_it_unpacks() -> None:
    bomb = b"\1" + zstandard.ZstdCompressor(level=19).compress(bytes(64 * 1024 * 1024))
    assert len(bomb) < 10_000
    with pytest.raises(WireError, match="too-large"):
        unpack(bomb, 1024 * 1024)


def test_a_frame_that_hides_its_size_is_refused() -> None:
    hidden = zstandard.ZstdCompressor(write_content_size=False).compress(b"y" * 5000)
    with pytest.raises(WireError):
        unpack(b"\1" + hidden, 10_000)


@pytest.mark.parametrize(
    "data", [b"", b"\2abc", b"\1", b"\1garbage", b"\1" + pack(b"z" * 9000)[5:]]
)
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        unpack(data, 10_000)


def test_a_plain_value_over_the_limit_is_refused() -> None:
    with pytest.raises(WireError):
        unpack(pack(b"abc"), 2)
