"""The value that is pushed to many subscribers: a JSON object of 10 KB, one key changed per update.

Update n sets key n mod `KEYS` to a text of fixed length, so a new value has the length of the old
one and a change is a place and its bytes. Whatever system carries it, update n is the same change.

What other systems carry is a *payload*: the version as ten digits, then either the whole value or,
patched by hand, the place and the new bytes. The version stands at a fixed position so that a
subscriber needs to decode nothing to know what it has. Patches of different keys may be applied in
any order: `KEYS` is far beyond what is under way at a time.
"""

from __future__ import annotations

from typing import NamedTuple

VALUE_BYTES = 10_000
KEYS = 340
VERSION_BYTES = 10

_OFFSET_BYTES = 5
_TEXT_BYTES = 16
_ENTRY = '"key-{:03d}":"{:016x}",'
_ENTRY_BYTES = len(_ENTRY.format(0, 0))
_TEXT_AT = 1 + _ENTRY.format(0, 0).index("0000000000000000")
_PATCH_AT = VERSION_BYTES + _OFFSET_BYTES


class Edit(NamedTuple):
    """The change of one update."""

    version: int
    key: str
    text: str
    offset: int
    """Of the text in the value."""


def first_value() -> bytearray:
    """The value before the first update."""
    entries = "".join(_ENTRY.format(number, 0) for number in range(KEYS))
    rest = VALUE_BYTES - len(entries) - len('{"rest":""}')
    return bytearray(f'{{{entries}"rest":"{"x" * rest}"}}'.encode())


def edit_of(version: int) -> Edit:
    """Update number `version`, from 1 on."""
    number = version % KEYS
    text = f"{version * 0x9E3779B97F4A7C15 % 2**64:0{_TEXT_BYTES}x}"
    return Edit(version, f"key-{number:03d}", text, _TEXT_AT + number * _ENTRY_BYTES)


def apply_edit(value: bytearray, edit: Edit) -> None:
    value[edit.offset : edit.offset + _TEXT_BYTES] = edit.text.encode()


def whole_payload(version: int, value: bytearray) -> bytes:
    return b"%010d" % version + value


def patch_payload(edit: Edit) -> bytes:
    return b"%010d%05d%b" % (edit.version, edit.offset, edit.text.encode())


def apply_patch(value: bytearray, data: bytearray, begin: int, end: int) -> None:
    """Apply the patch payload at `begin` to a subscriber's copy."""
    offset = int(data[begin + VERSION_BYTES : begin + _PATCH_AT])
    value[offset : offset + end - begin - _PATCH_AT] = data[begin + _PATCH_AT : end]
