"""Deltas: what they do to bytes, how they add up, and their one encoding."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.config.splices import (
    SPLICES_MAX,
    BadDeltaError,
    Delta,
    Splice,
    apply_to,
    check,
    compose,
    decode,
    encode,
    inverse,
    length_after,
    size,
)
from swell.errors import WireError

BASE = b"colour = red\nsize = 3\n"


@st.composite
def deltas(draw: st.DrawFn, length: int) -> Delta:
    """Some delta of a base of so many bytes; splices may touch."""
    places = draw(st.lists(st.integers(0, length), max_size=8).map(sorted))
    splices = []
    for start, end in zip(places[::2], places[1::2], strict=False):
        data = draw(st.binary(max_size=6))
        if start < end or data:
            splices.append(Splice(start, end - start, data))
    return tuple(splices)


@st.composite
def based(draw: st.DrawFn) -> tuple[bytes, Delta]:
    base = draw(st.binary(max_size=40))
    return base, draw(deltas(len(base)))


def by_hand(data: bytes, splices: Delta) -> bytes:
    """From the last splice to the first, so that no offset moves."""
    for offset, length, new in reversed(splices):
        data = data[:offset] + new + data[offset + length :]
    return data


@pytest.mark.parametrize(
    ("splices", "after"),
    [
        ((), BASE),
        ((Splice(9, 3, b"blue"),), b"colour = blue\nsize = 3\n"),
        ((Splice(0, 13, b""),), b"size = 3\n"),
        ((Splice(22, 0, b"x = 1\n"),), b"colour = red\nsize = 3\nx = 1\n"),
        ((Splice(0, 0, b"# "), Splice(20, 1, b"44")), b"# colour = red\nsize = 44\n"),
        ((Splice(3, 0, b"A"), Splice(3, 0, b"B"), Splice(3, 3, b"C")), b"colABC = red\nsize = 3\n"),
        ((Splice(0, 22, b""),), b""),
    ],
)
def test_add_delete_update(splices: Delta, after: bytes) -> None:
    assert apply_to(BASE, splices) == after
    assert length_after(splices, len(BASE)) == len(after)


@pytest.mark.parametrize(
    ("splices", "sentence"),
    [
        ((Splice(20, 3, b""),), "reaches byte 23 of a base of 22 bytes"),
        ((Splice(23, 0, b"x"),), "reaches byte 23 of a base of 22 bytes"),
        ((Splice(-1, 0, b"x"),), "splice 1 of the delta begins before the first byte"),
        ((Splice(3, -1, b"x"),), "splice 1 of the delta changes nothing"),
        ((Splice(3, 0, b""),), "splice 1 of the delta changes nothing"),
        ((Splice(3, 2, b""), Splice(4, 1, b"")), "splice 2 of the delta begins inside the one"),
        ((Splice(9, 1, b""), Splice(3, 1, b"")), "splice 2 of the delta begins inside the one"),
        ((Splice(0, 0, b"x"),) * (SPLICES_MAX + 1), "65537 splices, allowed are 65536"),
    ],
)
def test_a_delta_that_does_not_fit_is_refused(splices: Delta, sentence: str) -> None:
    with pytest.raises(BadDeltaError, match=sentence):
        check(splices, len(BASE))
    with pytest.raises(BadDeltaError, match=sentence):
        apply_to(BASE, splices)


@settings(max_examples=100)
@given(based())
def test_applies_as_by_hand_and_leads_back(case: tuple[bytes, Delta]) -> None:
    base, splices = case
    after = apply_to(base, splices)
    assert after == by_hand(base, splices)
    back = inverse(splices, base)
    check(back, len(after))
    assert apply_to(after, back) == base
    assert inverse(back, after) == splices


@settings(max_examples=200)
@given(st.data())
def test_composed_is_both_in_a_row(data: st.DataObject) -> None:
    base, first = data.draw(based())
    between = apply_to(base, first)
    second = data.draw(deltas(len(between)))
    both = compose(first, second)
    assert apply_to(base, both) == apply_to(between, second)
    ends = [splice.offset + splice.length for splice in both]
    assert all(end < after.offset for end, after in zip(ends, both[1:], strict=False))


def test_composing_with_the_inverse_leaves_only_what_was_touched() -> None:
    there = (Splice(9, 3, b"blue"), Splice(20, 1, b""))
    back = inverse(there, BASE)
    assert compose(there, back) == (Splice(9, 3, b"red"), Splice(20, 1, b"3"))
    added = (Splice(5, 0, b"abc"),)
    assert compose(added, inverse(added, BASE)) == ()


def test_the_encoding_is_pinned() -> None:
    splices = (Splice(300, 2, b"ab"), Splice(302, 0, b"c"), Splice(310, 1, b""))
    data = bytes([3, 0xAC, 2, 2, 2, *b"ab", 0, 0, 1, *b"c", 8, 1, 0])
    assert encode(splices) == data
    assert decode(data) == splices
    assert encode(()) == b"\x00"
    assert decode(b"\x00") == ()


@settings(max_examples=100)
@given(based(), st.integers(0, 1 << 40))
def test_encoded_and_back(case: tuple[bytes, Delta], far: int) -> None:
    splices = tuple(splice._replace(offset=splice.offset + far) for splice in case[1])
    data = encode(splices)
    assert decode(data) == splices
    assert size(splices) == len(data)
    for end in range(len(data)):
        with pytest.raises(WireError, match="bad-delta"):
            decode(data[:end])
    with pytest.raises(WireError, match="bad-delta"):
        decode(data + b"\x00")


@settings(max_examples=200)
@given(st.binary(max_size=12))
def test_whatever_decodes_is_encoded_the_same(data: bytes) -> None:
    try:
        splices = decode(data)
    except WireError:
        return
    assert encode(splices) == data


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"", "cut off"),
        (b"\x80\x00", "spare bytes"),
        (b"\x01\x80\x00\x01\x00", "spare bytes"),
        (b"\x01\x05\x00\x00", "changes nothing"),
        (b"\x01\x05\x00\x02a", "data of a splice are cut off"),
        (b"\x01" + b"\xff" * 7 + b"\x01\x01\x00", "too long"),
        (b"\x01" + (b"\xff" * 6 + b"\x7f") * 2 + b"\x00", "ends at byte"),
        (b"\x81\x80\x04", "65537 splices"),
        (b"\x00\x00", "1 bytes behind"),
    ],
)
def test_bytes_that_are_no_delta(data: bytes, detail: str) -> None:
    with pytest.raises(WireError, match=detail):
        decode(data)


def test_no_encoding_of_what_contradicts_itself() -> None:
    with pytest.raises(BadDeltaError):
        encode((Splice(9, 1, b""), Splice(3, 1, b"")))
    with pytest.raises(BadDeltaError):
        encode((Splice(1 << 49, 1, b""),))
