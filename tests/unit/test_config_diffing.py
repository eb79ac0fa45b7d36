"""The delta of a whole new value: always right, short where it can be, never slow; and its face."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Sequence
from random import Random
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.config import diffing
from swell.config.anchors import Stretch
from swell.config.diffing import changes, delta
from swell.config.splices import SPLICES_MAX, Delta, apply_to, size
from swell.config.unified import LINE_BYTES_MAX, PLACES_MAX, unified

MiB = 1 << 20


def made(old: bytes, new: bytes) -> Delta:
    """The delta, which must exist and be right."""
    splices = delta(old, new)
    assert splices is not None
    assert apply_to(old, splices) == new
    return splices


def assert_changes_lead_to(old: bytes, new: bytes) -> None:
    """Also for values that are so different that there is no delta."""
    parts: list[bytes] = []
    at = new_at = 0
    for part in changes(old, new):
        assert part.old_end > part.old_start or part.new_end > part.new_start
        assert part.old_start > at or not parts
        parts += [old[at : part.old_start], new[part.new_start : part.new_end]]
        assert part.new_start - new_at == part.old_start - at
        at, new_at = part.old_end, part.new_end
    assert b"".join([*parts, old[at:]]) == new


def record(number: int) -> dict[str, object]:
    return {
        "id": number,
        "name": f"service-{number}",
        "enabled": number % 2 == 0,
        "weight": number % 7,
        "url": f"http://10.0.{number % 256}.{number // 256 % 256}:8080/health",
    }


def records(count: int) -> list[bytes]:
    return [json.dumps(record(number)).encode() + b"\n" for number in range(count)]


def edited(lines: list[bytes], count: int, rng: Random) -> list[bytes]:
    lines = list(lines)
    for number in range(count):
        at = rng.randrange(len(lines))
        match number % 3:
            case 0:
                lines[at] = lines[at].replace(b'"weight": ', b'"weight": 1')
            case 1:
                lines.insert(at, json.dumps(record(10**6 + number)).encode() + b"\n")
            case _:
                del lines[at]
    return lines


pieces = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"\n", b"line\n", b"a" * 30, b"ab" * 20, bytes(50), b'{"key": 1}, ']),
)
edit_lists = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 60), pieces), max_size=12)


@settings(max_examples=150, deadline=None)
@given(st.lists(pieces, max_size=60).map(b"".join), edit_lists)
def test_what_was_edited_is_made_again(old: bytes, edits: list[tuple[int, int, bytes]]) -> None:
    new = old
    for at, length, data in edits:
        new = new[:at] + data + new[at + length :]
    assert_changes_lead_to(old, new)
    splices = delta(old, new)
    if splices is not None:
        assert apply_to(old, splices) == new


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([b"ab", b"a\n", bytes(range(256)), b"\0\1\n"]),
    st.integers(0, 800),
    st.integers(0, 800),
    st.randoms(use_true_random=False),
)
def test_values_of_few_letters(letters: bytes, old: int, new: int, rng: Random) -> None:
    assert_changes_lead_to(bytes(rng.choices(letters, k=old)), bytes(rng.choices(letters, k=new)))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (b"", b"", ()),
        (b"same", b"same", ()),
        (b"", b"x", None),
        (b"x", b"", None),
        (b"short", b"other", None),
        (b"a" * 100, b"a" * 101, ((100, 0, b"a"),)),
        (b"a" * 101, b"a" * 100, ((100, 1, b""),)),
        (b"x" * 50 + b"1" + b"y" * 50, b"x" * 50 + b"2" + b"y" * 50, ((50, 1, b"2"),)),
    ],
)
def test_small_cases(old: bytes, new: bytes, expected: tuple[object, ...] | None) -> None:
    assert delta(old, new) == expected


def test_changed_numbers_of_a_document_cost_a_few_bytes() -> None:
    document = {f"key{number}": number * 7919 for number in range(400)}
    old = json.dumps(document, indent=1).encode()
    document |= {"key7": 1, "key200": 2, "key390": 3}
    splices = made(old, json.dumps(document, indent=1).encode())
    assert len(splices) == 3
    assert size(splices) < 20


def test_changed_numbers_of_one_long_line_cost_a_few_bytes() -> None:
    document = [record(number) for number in range(8000)]
    old = json.dumps(document, separators=(",", ":")).encode()
    document[10]["weight"] = 77
    document[4000]["name"] = "x"
    del document[7000]["enabled"]
    splices = made(old, json.dumps(document, separators=(",", ":")).encode())
    assert len(splices) == 3
    assert size(splices) < 40


def test_scattered_edits_cost_what_they_add() -> None:
    lines = records(8000)
    new = edited(lines, 60, Random(1))
    splices = made(b"".join(lines), b"".join(new))
    added = sum(len(line) for line in new if b"service-1000" in line)
    assert len(splices) <= 60
    assert size(splices) < added + 60 * 8


def test_a_block_that_moved_costs_its_length() -> None:
    lines = records(8000)
    block = lines[5000:5100]
    new = lines[:1000] + block + lines[1000:5000] + lines[5100:]
    assert size(made(b"".join(lines), b"".join(new))) < 1.1 * len(b"".join(block))


def test_every_line_changed() -> None:
    old = b"".join(records(2000))
    splices = made(old, old.replace(b'"weight": ', b'"weight": 1'))
    assert len(splices) == 2000
    assert size(splices) == 2000 * 4 + 2


def test_binary_edits() -> None:
    rng = Random(2)
    old = rng.randbytes(MiB)
    new = bytearray(old)
    for _ in range(40):
        at = rng.randrange(MiB)
        new[at : at + rng.randrange(5)] = rng.randbytes(rng.randrange(1, 5))
    assert size(made(old, bytes(new))) < 40 * 12


@pytest.mark.parametrize("period", [b"\0", b"ab", b"abc\n", b"same line\n", bytes(range(256))])
def test_periodic_content(period: bytes) -> None:
    rng = Random(3)
    old = period * (MiB // 32 // len(period))
    replaced = bytearray(old)
    for at in rng.sample(range(len(old)), 30):
        replaced[at] = 7
    assert size(made(old, bytes(replaced))) < 30 * 12
    inserted = replaced
    for at in rng.sample(range(len(period), len(old)), 2):
        inserted[at:at] = b"inserted"
    assert_changes_lead_to(old, bytes(inserted))


def test_more_changes_than_a_delta_may_have_are_joined() -> None:
    old = b"".join(b"%06d same text\n" % number for number in range(SPLICES_MAX + 500))
    new = old.replace(b"same", b"the same")
    assert len(made(old, new)) == SPLICES_MAX


def no_line_feed(rng: Random) -> tuple[bytes, bytes]:
    letters = bytes(rng.choices(b"abcdefgh", k=MiB // 4))
    return letters, letters[::-1]


def line_by_line(rng: Random) -> tuple[bytes, bytes]:
    lines = [b"%d\n" % rng.randrange(10**9) for _ in range(30_000)]
    return b"".join(lines), b"".join(sorted(lines))


HARD: dict[str, Callable[[Random], tuple[bytes, bytes]]] = {
    "all different": lambda rng: (rng.randbytes(2 * MiB), rng.randbytes(2 * MiB)),
    "no line feed": no_line_feed,
    "sorted lines": line_by_line,
    "periods of 2 and 3": lambda _: (b"ab" * 500_000, b"aba" * 350_000),
    "line feeds": lambda _: (b"\n" * MiB, b"\n\0" * MiB),
    "zeros with one": lambda _: (bytes(MiB) + b"1" + bytes(MiB), b"1" + bytes(3 * MiB) + b"1"),
    "equal lines, fewer": lambda _: (b"x\n" * 400_000, b"y\n" + b"x\n" * 300_000 + b"y\n"),
}


@pytest.mark.parametrize("name", HARD)
def test_hard_content_takes_no_longer(name: str) -> None:
    old, new = HARD[name](Random(4))
    start_s = perf_counter()
    delta(old, new)
    assert perf_counter() - start_s < 8.0  # a tenth of a second when the machine is idle
    assert_changes_lead_to(old, new)


def test_an_edit_of_a_very_long_value_is_found_at_once() -> None:
    old = b"0123456789abcdef0123456789abcde\n" * (2 * MiB)
    new = old[: 40 * MiB] + b"edit" + old[40 * MiB :]
    start_s = perf_counter()
    splices = delta(old, new)
    shown = list(unified(old, new, "old", "new"))
    assert perf_counter() - start_s < 5.0
    assert splices == ((40 * MiB, 0, b"edit"),)
    assert shown[2] == f"@@ -{40 * MiB // 32 - 2},7 +{40 * MiB // 32 - 2},7 @@"
    assert len(shown) == 11


lines_of_text = st.lists(st.sampled_from([b"a\n", b"b\n", b"ab\n", b"\n", b"c c\n"]), max_size=40)


@settings(max_examples=150, deadline=None)
@given(lines_of_text, lines_of_text, st.booleans(), st.integers(0, 3))
def test_the_difference_shown_is_a_patch(
    old_lines: list[bytes], new_lines: list[bytes], cut: bool, context: int
) -> None:
    old, new = b"".join(old_lines), b"".join(new_lines)
    new = new.removesuffix(b"\n") if cut else new
    assert patched(old, list(unified(old, new, "old", "new", context))) == new


def patched(old: bytes, shown: list[str]) -> bytes:
    """What a plain reading of a difference makes of `old`, with its every line and number used."""
    lines = old.splitlines(keepends=True)
    made: list[bytes] = []
    at = 0
    for line in shown[2:]:
        data = line[1:].encode() + b"\n"
        if line.startswith("@@"):
            first, _, count = line.split()[1][1:].partition(",")
            start = int(first) - (count != "0")
            made += lines[at:start]
            at = start
            first, _, count = line.split()[2][1:].partition(",")
            assert len(made) == int(first) - (count != "0")
        elif line.startswith("\\"):
            made[-1] = made[-1].removesuffix(b"\n")
        elif line.startswith("+"):
            made.append(data)
        else:
            assert lines[at].removesuffix(b"\n") + b"\n" == data
            made += [lines[at]] if line.startswith(" ") else []
            at += 1
    return b"".join(made + lines[at:])


def test_the_same_is_shown_as_by_difflib() -> None:
    lines = records(300)
    new = edited(lines, 9, Random(5))
    expected = difflib.unified_diff(
        [line.decode().rstrip() for line in lines],
        [line.decode().rstrip() for line in new],
        "old",
        "new",
        lineterm="",
    )
    assert list(unified(b"".join(lines), b"".join(new), "old", "new")) == list(expected)


def test_equal_values_show_nothing() -> None:
    assert list(unified(b"same\n", b"same\n", "old", "new")) == []


def test_a_change_in_a_long_line_is_an_excerpt() -> None:
    line = json.dumps([record(number) for number in range(1000)]).encode()
    new = line.replace(b"service-500", "ä\x1b[31m".encode())
    shown = list(unified(b"first\n" + line, b"first\n" + new, "old", "new"))
    assert shown[2].startswith("@@ line -2 +2, byte ")
    assert "service-500" in shown[3]
    assert "ä\\x1b[31m" in shown[4]
    assert all(len(line) < 200 for line in shown)


def test_long_lines_that_were_added_are_cut() -> None:
    added = b"x" * 3 * LINE_BYTES_MAX
    shown = list(unified(b"a\nb\n", b"a\n" + added + b"\nb\n", "old", "new"))
    assert f"+{'x' * LINE_BYTES_MAX}… ({len(added)} bytes)" in shown


def test_binary_values_show_places() -> None:
    old = bytes(10_000)
    new = bytearray(old)
    for number in range(PLACES_MAX + 5):
        new[300 * (number + 1)] = 1
    shown = list(unified(old, bytes(new), "old", "new"))
    assert shown[2] == "binary: 25 bytes become 25, places: 25"
    assert shown[3] == "@@ bytes -300,1 +300,1 @@"
    assert shown[-1] == "… and 5 places more"


def test_what_commands_a_terminal_is_escaped() -> None:
    shown = list(unified(b"a\n", b"\x1b]0;x\x07\r\n\xff\n", "old\x1b", "new"))
    assert shown[0] == "--- old\\x1b"
    assert "+\\x1b]0;x\\x07\\r" in shown
    assert "+\\xff" in shown


# What has nothing in common.


def document(rng: Random, keys: Sequence[str]) -> bytes:
    entries = [f'"{key}": "{rng.getrandbits(64):016x}"' for key in keys]
    return ("{" + ", ".join(entries) + "}").encode()


def test_a_value_that_is_all_new_is_given_up_without_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = Random(5)
    old = document(rng, [f"old-{rng.getrandbits(32):08x}" for _ in range(300)])
    new = document(rng, [f"{rng.getrandbits(48):012x}" for _ in range(300)])

    def search(*_: bytes) -> Iterator[Stretch]:
        raise AssertionError("nothing agrees: there is nothing to search for")

    monkeypatch.setattr(diffing, "changes", search)
    assert delta(old, new) is None
    assert delta(old, rng.randbytes(5_000)) is None
    assert delta(rng.randbytes(200_000), rng.randbytes(200_000)) is None


def test_a_value_of_which_half_is_new_is_searched() -> None:
    rng = Random(6)
    keys = [f"{rng.getrandbits(32):08x}" for _ in range(300)]
    old = document(rng, keys)
    entries = old[1:-1].split(b", ")
    entries[::2] = document(rng, keys[::2])[1:-1].split(b", ")
    new = b"{" + b", ".join(entries) + b"}"
    splices = delta(old, new)
    assert splices is not None
    assert apply_to(old, splices) == new
    assert size(splices) < 0.4 * len(new)


def test_values_that_repeat_themselves_are_searched() -> None:
    old = bytes(range(256)) * 100
    changed = bytearray(old)
    for place in range(0, len(changed), 1000):
        changed[place] ^= 255
    splices = delta(old, bytes(changed))
    assert splices is not None
    assert apply_to(old, splices) == changed
    assert size(splices) < 500
