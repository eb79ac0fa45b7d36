"""Messages as frames, and frames that are no messages."""

from __future__ import annotations

import pytest

from swell.errors import WireError
from swell.wire.codec import Message, decode, encode, frame, known, message
from swell.wire.limits import FRAME_BYTES_MAX


@message(255)
class Sample(Message):
    number: int
    names: list[str]
    note: str = ""


def test_round_trip() -> None:
    sample = Sample(7, ["a", "ü"], "x")
    data = encode(sample)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert data[4] == 255
    assert decode(data) == sample
    assert known(255)
    assert not known(254)


def test_fields_at_the_end_may_be_missing() -> None:
    assert decode(frame(255, b"\x92\x07\x90")) == Sample(7, [])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x92\x07",
        b"\x92\x07\x90trailing",
        b"\x92\xa1x\x90",
        b"\x92\x07\x91\xa2\xff\xfe",
        b"\x80",
        b"\x91" * 100_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xc1",
    ],
)
def test_bad_bodies(body: bytes) -> None:
    with pytest.raises(WireError) as caught:
        decode(frame(255, body))
    assert caught.value.reason == "bad-body"


def test_truncated_at_each_byte() -> None:
    data = encode(Sample(70_000, ["abc", "de"], "note"))
    for cut in range(6, len(data)):
        with pytest.raises(WireError):
            decode(data[:cut])


def test_unknown_type() -> None:
    with pytest.raises(WireError) as caught:
        decode(frame(254, b"\x90"))
    assert caught.value.reason == "unknown-type"


def test_a_frame_that_is_too_long_is_refused_before_it_is_sent() -> None:
    assert len(frame(1, b"x" * (FRAME_BYTES_MAX - 2))) == FRAME_BYTES_MAX + 4
    with pytest.raises(WireError, match="frame-too-long"):
        frame(1, b"x" * (FRAME_BYTES_MAX - 1))
