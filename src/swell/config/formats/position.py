"""Where in a text something is wrong: offsets into lines and columns, counted from 1."""

from __future__ import annotations

from swell.errors import InvalidContentError


def invalid_at(data: bytes, offset: int, problem: str) -> InvalidContentError:
    """The error for a byte offset. Columns count characters, not bytes."""
    line_start = data.rfind(b"\n", 0, offset) + 1
    column = len(data[line_start:offset].decode(errors="replace")) + 1
    return InvalidContentError(data.count(b"\n", 0, offset) + 1, column, problem)


def decode(data: bytes) -> str:
    """The text of UTF-8 bytes; `InvalidContentError` says where they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise invalid_at(
            data, error.start, f"the byte 0x{byte:02x} is not UTF-8: save the text as UTF-8"
        ) from None


def encode(value: str) -> bytes:
    """The bytes of a new value; `InvalidContentError` if it contains half a surrogate pair."""
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidContentError(
            1, error.start + 1, "the value is not Unicode text: leave out the lone surrogate"
        ) from None
