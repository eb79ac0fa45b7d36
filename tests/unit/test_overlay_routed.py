"""The binary form of multicasts and detours: whole, cut at each byte, and with forged parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swell.errors import WireError
from swell.ids import MessageId
from swell.overlay.membership_messages import Nack
from swell.overlay.messages import DETOUR
from swell.overlay.routed import (
    PATH_LENGTH_MAX,
    ROUTED_BYTES_MAX,
    Detour,
    decode_detour,
    decode_routed,
    encode_detour,
    encode_routed,
    with_hop,
)
from swell.wire import codec
from swell.wire.codec import FLAGS_OFFSET, HEADER_BYTES, TYPE_OFFSET

u32 = st.integers(0, 2**32 - 1)
ids = st.builds(MessageId, u32, u32, st.integers(0, 2**64 - 1))
MESSAGE = MessageId(7, 2, 99)


@given(
    ids,
    u32,
    st.integers(0, 255),
    st.integers(0, 255),
    st.binary(max_size=40),
    st.binary(max_size=40),
    st.lists(u32, max_size=PATH_LENGTH_MAX),
    st.booleans(),
)
def test_round_trip(
    message: MessageId,
    zone: int,
    matcher: int,
    port: int,
    target: bytes,
    payload: bytes,
    path: list[int],
    traced: bool,
) -> None:
    frame = encode_routed(message, zone, matcher, port, target, payload, traced)
    for node in path:
        frame = with_hop(frame, node)
    routed = decode_routed(frame)
    assert routed.id == message
    assert (routed.source_zone, routed.matcher, routed.port) == (zone, matcher, port)
    assert (routed.target, routed.payload) == (target, payload)
    assert routed.path == (tuple(path) if traced else ())
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


def test_an_untraced_frame_is_passed_on_as_it_came() -> None:
    frame = encode_routed(MESSAGE, 1, 1, 20, b"", b"payload")
    assert with_hop(frame, 5) is frame


def test_a_path_stops_growing_at_its_limit() -> None:
    frame = encode_routed(MESSAGE, 1, 1, 20, b"t", b"payload", traced=True)
    for node in range(PATH_LENGTH_MAX + 5):
        frame = with_hop(frame, node)
    routed = decode_routed(frame)
    assert routed.path == tuple(range(PATH_LENGTH_MAX))
    assert routed.payload == b"payload"


@pytest.mark.parametrize("traced", [False, True])
def test_a_routed_frame_cut_before_its_payload_is_an_error(traced: bool) -> None:
    whole = encode_routed(MESSAGE, 1, 1, 20, b"target", b"", traced)
    for end in range(HEADER_BYTES, len(whole)):
        cut = codec.frame(whole[TYPE_OFFSET], whole[HEADER_BYTES:end], whole[FLAGS_OFFSET])
        with pytest.raises(WireError):
            decode_routed(cut)


def test_a_path_longer_than_allowed_is_an_error() -> None:
    frame = bytearray(encode_routed(MESSAGE, 1, 1, 20, b"", b"x" * 400, traced=True))
    frame[-1] = PATH_LENGTH_MAX + 1
    with pytest.raises(WireError):
        decode_routed(bytes(frame))


def test_a_message_must_leave_room_for_a_detour() -> None:
    longest = ROUTED_BYTES_MAX - len(encode_routed(MESSAGE, 1, 1, 20, b"", b""))
    frame = encode_routed(MESSAGE, 1, 1, 20, b"", b"x" * longest, traced=True)
    for node in range(PATH_LENGTH_MAX):
        frame = with_hop(frame, node)
    decode_routed(frame)
    encode_detour(Detour(1, 2, 3, False, tuple(range(255)), frame))
    with pytest.raises(WireError, match="frame-too-long"):
        encode_routed(MESSAGE, 1, 1, 20, b"", b"x" * (longest + 1))
    with pytest.raises(WireError, match="frame-too-long"):
        encode_routed(MESSAGE, 1, 1, 20, b"x" * 65536, b"")


@given(u32, u32, u32, st.booleans(), st.lists(u32, max_size=255), st.binary(max_size=40))
def test_detour_round_trip(
    origin: int, via: int, target: int, bounced: bool, tried: list[int], payload: bytes
) -> None:
    inner = encode_routed(MESSAGE, origin, 1, 20, b"", payload)
    detour = Detour(origin, via, target, bounced, tuple(tried), inner)
    assert decode_detour(encode_detour(detour)) == detour


def test_a_detour_cut_anywhere_is_an_error() -> None:
    inner = encode_routed(MESSAGE, 1, 1, 20, b"target", b"payload")
    frame = encode_detour(Detour(1, 2, 3, True, (2, 4), inner))
    for end in range(HEADER_BYTES, len(frame)):
        with pytest.raises(WireError):
            decode_detour(codec.frame(DETOUR, frame[HEADER_BYTES:end]))
    with pytest.raises(WireError):
        decode_detour(codec.frame(DETOUR, frame[HEADER_BYTES:] + b"more"))


def test_a_detour_carries_nothing_but_routed_frames() -> None:
    """Or a node would pass on a control message of somebody else as its own."""
    inner = bytearray(encode_routed(MESSAGE, 1, 1, 20, b"target", b"payload"))
    inner[TYPE_OFFSET] = Nack.wire_type  # type: ignore[attr-defined]
    with pytest.raises(WireError, match="routed"):
        decode_detour(encode_detour(Detour(1, 2, 3, False, (), bytes(inner))))


@given(st.binary(max_size=80), st.integers(0, 255))
def test_arbitrary_bytes_are_read_or_refused(body: bytes, flags: int) -> None:
    for decode in (decode_routed, decode_detour):
        frame = codec.frame(DETOUR, body, flags)
        try:
            read = decode(frame)
        except WireError:
            continue
        for part in ("payload", "path", "id"):
            getattr(read, part, None)
