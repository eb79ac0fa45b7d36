"""A difference of two values for people to read, in the manner of `diff -u`.

Only what `swell.config.diffing` found to differ is looked at, so a small edit of a very long value
shows at once; lines are numbered by counting line feeds. A changed part of a line that is too long
to print is shown as an excerpt; values that are not text as places and numbers of bytes.
Whatever could command a terminal is escaped. Lines are yielded one by one, without line feeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

from swell.config.anchors import Stretch
from swell.config.diffing import changes

LINE_BYTES_MAX = 4096
"""How far the ends of a line are looked for, and how much of it is printed."""

PLACES_MAX = 20
"""Places that are listed of a binary value."""

_HEAD_BYTES = 8192
_EXCERPT_BYTES = 40
_MATCHED_LINES_MAX = 100  # SequenceMatcher is quadratic: longer blocks are shown as they are.


class Hunk(NamedTuple):
    """Neighbouring blocks of lines; or, if `excerpt`, one change inside a long line."""

    blocks: list[Stretch]
    excerpt: bool


def unified(
    old: bytes, new: bytes, old_label: str, new_label: str, context: int = 3
) -> Iterator[str]:
    """The lines of the difference; none if the values are equal."""
    stretches = list(changes(old, new))
    if not stretches:
        return
    yield f"--- {_escape(old_label)}"
    yield f"+++ {_escape(new_label)}"
    if _is_text(old, new, stretches):
        yield from _text(old, new, stretches, context)
    else:
        yield from _binary(stretches)


def _is_text(old: bytes, new: bytes, stretches: list[Stretch]) -> bool:
    return (
        b"\0" not in old[:_HEAD_BYTES]
        and b"\0" not in new[:_HEAD_BYTES]
        and all(old.find(b"\0", part.old_start, part.old_end) < 0 for part in stretches)
        and all(new.find(b"\0", part.new_start, part.new_end) < 0 for part in stretches)
    )


def _binary(stretches: list[Stretch]) -> Iterator[str]:
    old_bytes = sum(part.old_end - part.old_start for part in stretches)
    new_bytes = sum(part.new_length for part in stretches)
    yield f"binary: {old_bytes} bytes become {new_bytes}, places: {len(stretches)}"
    for part in stretches[:PLACES_MAX]:
        old_length = part.old_end - part.old_start
        yield f"@@ bytes -{part.old_start},{old_length} +{part.new_start},{part.new_length} @@"
    if len(stretches) > PLACES_MAX:
        yield f"… and {len(stretches) - PLACES_MAX} places more"


def _text(old: bytes, new: bytes, stretches: list[Stretch], context: int) -> Iterator[str]:
    old_lines, new_lines = _LineNumbers(old), _LineNumbers(new)
    hunks = list(_hunks(old, new, stretches, context))
    floor = 0
    for number, (blocks, excerpt) in enumerate(hunks):
        first, last = blocks[0], blocks[-1]
        if excerpt:
            old_line, new_line = old_lines.at(first.old_start), new_lines.at(first.new_start)
            yield f"@@ line -{old_line} +{new_line}, byte -{first.old_start} +{first.new_start} @@"
            yield "-" + _excerpt(old, first.old_start, first.old_end)
            yield "+" + _excerpt(new, first.new_start, first.new_end)
        else:
            more = number + 1 < len(hunks)
            ceiling = hunks[number + 1].blocks[0].old_start if more else len(old)
            start = _context_start(old, first.old_start, context, floor)
            end = _context_end(old, last.old_end, context, ceiling)
            new_start = first.new_start - (first.old_start - start)
            new_end = last.new_end + (end - last.old_end)
            yield f"@@ -{old_lines.span(start, end)} +{new_lines.span(new_start, new_end)} @@"
            yield from _body(old, new, blocks, start, end)
        floor = last.old_end


def _hunks(old: bytes, new: bytes, stretches: list[Stretch], context: int) -> Iterator[Hunk]:
    """Blocks whose context would meet are shown together."""
    hunk: Hunk | None = None
    for block, excerpt in _blocks(old, new, stretches):
        if hunk and not (excerpt or hunk.excerpt):
            between = old.count(b"\n", hunk.blocks[-1].old_end, block.old_start)
            if between <= 2 * context:
                hunk.blocks.append(block)
                continue
        if hunk:
            yield hunk
        hunk = Hunk([block], excerpt)
    if hunk:
        yield hunk


def _blocks(old: bytes, new: bytes, stretches: list[Stretch]) -> Iterator[tuple[Stretch, bool]]:
    """The lines that changed, neighbours joined; True: a change in a line that is too long."""
    last: Stretch | None = None
    for stretch in stretches:
        block = _whole_lines(old, new, stretch)
        if last and block and (block.old_start <= last.old_end or block.new_start <= last.new_end):
            last = Stretch(last.old_start, block.old_end, last.new_start, block.new_end)
            continue
        if last:
            yield _without_equal_ends(old, new, last), False
        if not block:
            yield stretch, True
        last = block
    if last:
        yield _without_equal_ends(old, new, last), False


def _whole_lines(old: bytes, new: bytes, stretch: Stretch) -> Stretch | None:
    """The lines that a stretch touches, in both values; None if one of them is too long."""
    old_start, old_end, new_start, new_end = stretch
    if not (_begins_line(old, old_start) and _begins_line(new, new_start)):
        old_start, new_start = _line_start(old, old_start), _line_start(new, new_start)
    if not (_begins_line(old, old_end) and _begins_line(new, new_end)):
        old_end, new_end = _line_end(old, old_end), _line_end(new, new_end)
    if min(old_start, old_end, new_start, new_end) < 0:
        return None
    return Stretch(old_start, old_end, new_start, new_end)


def _without_equal_ends(old: bytes, new: bytes, block: Stretch) -> Stretch:
    """An added line may begin like the next one: then that one was touched without a change."""
    old_start, old_end, new_start, new_end = block
    while old_start < old_end and new_start < new_end:
        line = next(_lines(old, old_start, old_end))
        if line != next(_lines(new, new_start, new_end)):
            break
        old_start, new_start = old_start + len(line), new_start + len(line)
    while old_start < old_end and new_start < new_end:
        old_line = old.rfind(b"\n", old_start, old_end - 1) + 1 or old_start
        new_line = new.rfind(b"\n", new_start, new_end - 1) + 1 or new_start
        if old[old_line:old_end] != new[new_line:new_end]:
            break
        old_end, new_end = old_line, new_line
    return Stretch(old_start, old_end, new_start, new_end)


def _begins_line(data: bytes, at: int) -> bool:
    return at == 0 or data[at - 1] == ord("\n")


def _line_start(data: bytes, at: int) -> int:
    """Where the line begins that `at` is in; -1 if too far away."""
    lowest = max(at - LINE_BYTES_MAX, 0)
    found = data.rfind(b"\n", lowest, at)
    return found + 1 if found >= 0 or not lowest else -1


def _line_end(data: bytes, at: int) -> int:
    """Behind the line feed of the line that `at` is in; -1 if too far away."""
    highest = min(at + LINE_BYTES_MAX, len(data))
    found = data.find(b"\n", at, highest)
    if found >= 0:
        return found + 1
    return highest if highest == len(data) else -1


def _context_start(data: bytes, at: int, lines: int, floor: int) -> int:
    """The beginning of up to so many lines before `at`, none of them from before `floor`."""
    for _ in range(lines):
        start = _line_start(data, at - 1) if at > floor else -1
        if start < floor:
            break
        at = start
    return at


def _context_end(data: bytes, at: int, lines: int, ceiling: int) -> int:
    """The end of up to so many lines behind `at`, none of them beyond `ceiling`."""
    for _ in range(lines):
        end = _line_end(data, at)
        if end < 0 or end > ceiling:
            break
        at = end
    return at


def _body(old: bytes, new: bytes, blocks: list[Stretch], at: int, end: int) -> Iterator[str]:
    for old_start, old_end, new_start, new_end in blocks:
        yield from _signed(" ", _lines(old, at, old_start))
        before, after = _lines(old, old_start, old_end), _lines(new, new_start, new_end)
        if (
            old.count(b"\n", old_start, old_end) < _MATCHED_LINES_MAX
            and new.count(b"\n", new_start, new_end) < _MATCHED_LINES_MAX
        ):
            yield from _matched(list(before), list(after))
        else:
            yield from _signed("-", before)
            yield from _signed("+", after)
        at = old_end
    yield from _signed(" ", _lines(old, at, end))


def _matched(before: list[bytes], after: list[bytes]) -> Iterator[str]:
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, old_at, old_end, new_at, new_end in matcher.get_opcodes():
        if tag == "equal":
            yield from _signed(" ", iter(before[old_at:old_end]))
        else:
            yield from _signed("-", iter(before[old_at:old_end]))
            yield from _signed("+", iter(after[new_at:new_end]))


def _lines(data: bytes, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        stop = data.find(b"\n", start, end) + 1 or end
        yield data[start:stop]
        start = stop


def _signed(sign: str, lines: Iterator[bytes]) -> Iterator[str]:
    for line in lines:
        text = line.removesuffix(b"\n")
        if len(text) > LINE_BYTES_MAX:
            yield f"{sign}{_readable(text[:LINE_BYTES_MAX])}… ({len(text)} bytes)"
        else:
            yield sign + _readable(text)
        if len(text) == len(line):
            yield "\\ No newline at end of file"


def _excerpt(data: bytes, start: int, end: int) -> str:
    """The changed bytes with a little of what is around them; not all, if they are many."""
    low, high = max(start - _EXCERPT_BYTES, 0), min(end + _EXCERPT_BYTES, len(data))
    shown = data[low : min(high, low + LINE_BYTES_MAX)]
    if low:  # Do not begin inside a character.
        shown = shown.lstrip(bytes(range(0x80, 0xC0)))
    omitted = f" ({high - low - LINE_BYTES_MAX} bytes)" if high - low > LINE_BYTES_MAX else ""
    return ("…" if low else "") + _readable(shown) + ("…" if high < len(data) else "") + omitted


def _readable(data: bytes) -> str:
    return _escape(data.decode("utf-8", "backslashreplace"))


def _escape(text: str) -> str:
    if text.replace("\t", "").isprintable():
        return text
    return "".join(
        sign if sign == "\t" or sign.isprintable() else sign.encode("unicode_escape").decode()
        for sign in text
    )


class _LineNumbers:
    """Numbers of lines, from 1, for offsets that mostly ascend."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset, self._line = 0, 1

    def at(self, offset: int) -> int:
        self._line += self._data.count(b"\n", self._offset, offset)
        self._line -= self._data.count(b"\n", offset, self._offset)
        self._offset = offset
        return self._line

    def span(self, start: int, end: int) -> str:
        """First line and number of lines, as `diff -u` writes them."""
        line = self.at(start)
        count = self._data.count(b"\n", start, end)
        if end > start and not _begins_line(self._data, end):
            count += 1
        if count == 0:
            line -= 1
        return f"{line}" if count == 1 else f"{line},{count}"
