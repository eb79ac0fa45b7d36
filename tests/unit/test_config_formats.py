"""Formats by name, paths, key=value files, XML, and what has no paths."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.config.formats.changes import replace
from swell.config.formats.format import (
    Format,
    format_of,
    get_path,
    set_path,
    unset_path,
    validate,
)
from swell.config.formats.path import END, Step, parse_path, show_path
from swell.config.splices import apply_to
from swell.errors import (
    EditRefusedError,
    InvalidContentError,
    InvalidPathError,
    PathNotFoundError,
)


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("app.json", Format.JSON),
        ("a/b/APP.YML", Format.YAML),
        ("x.yaml", Format.YAML),
        ("x.toml", Format.TOML),
        ("x.properties", Format.PROPERTIES),
        (".env", Format.PROPERTIES),
        ("x.ini", Format.PROPERTIES),
        ("x.xml", Format.XML),
        ("x.json.txt", Format.TEXT),
        ("x.bin", Format.BYTES),
        ("json", Format.BYTES),
    ],
)
def test_format_of(name: str, format: Format) -> None:
    assert format_of(name) is format


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("a", ("a",)),
        ("a.b-c.d_é", ("a", "b-c", "d_é")),
        ("servers[0].host", ("servers", 0, "host")),
        ("servers[-1][-]", ("servers", -1, END)),
        ("[0].a", (0, "a")),
        ('"a.b".c', ("a.b", "c")),
        ('a."".b', ("a", "", "b")),
        (r'a."x\"\u00e9\\"[2]', ("a", 'x"é\\', 2)),
    ],
)
def test_paths(path: str, steps: tuple[Step, ...]) -> None:
    assert parse_path(path) == steps
    assert parse_path(show_path(steps)) == steps


@pytest.mark.parametrize(
    "path",
    [
        *(
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "a[",
            "a[]",
            "a[x]",
            "a[1",
            "a]",
            'a"b"',
            '"a',
            "a b",
            "a=b",
        ),
        *(
            '"a"b',
            "a[0]b",
            "a[1234567890]",
            r'"\x"',
            r'"\ud800"',
            "a\x00",
            "a" * 5000,
            "a" + ".a" * 256,
        ),
    ],
)
def test_bad_paths(path: str) -> None:
    with pytest.raises(InvalidPathError):
        parse_path(path)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=4) | st.integers(-9, 9) | st.just(END), min_size=1, max_size=4))
def test_shown_paths_are_read_back(steps: list[Step]) -> None:
    assert parse_path(show_path(tuple(steps))) == tuple(steps)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=8), st.binary(max_size=8))
def test_replacements_are_trimmed(old: bytes, new: bytes) -> None:
    splices = replace(b"<" + old + b">", 1, 1 + len(old), new)
    if old == new:
        assert splices == ()
        return
    assert apply_to(b"<" + old + b">", splices) == b"<" + new + b">"
    (splice,) = splices
    gone = old[splice.offset - 1 : splice.offset - 1 + splice.length]
    assert (
        not gone or not splice.data or (gone[:1] != splice.data[:1] and gone[-1] != splice.data[-1])
    )


@pytest.mark.parametrize("format", [Format.TEXT, Format.BYTES, Format.XML])
def test_formats_without_paths(format: Format) -> None:
    with pytest.raises(EditRefusedError, match="put it as a whole"):
        set_path(format, b"x", "a", "1")


def test_text_and_bytes() -> None:
    validate(Format.BYTES, b"\xff\x00")
    validate(Format.TEXT, "é\n".encode())
    with pytest.raises(InvalidContentError, match=r"line 2, column 2: .* not UTF-8"):
        validate(Format.TEXT, b"a\n\xc3\xa9\xff")


@pytest.mark.parametrize(
    "error",
    [
        InvalidContentError(1, 2, "wrong"),
        InvalidPathError("wrong"),
        PathNotFoundError("wrong"),
        EditRefusedError("wrong"),
    ],
)
def test_errors_travel(error: Exception) -> None:
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


PROPERTIES = b"""\
# comment = no
! also: no
database.pool.size = 10
  indented:  a b  \r
long = one \\
    two
empty=
export TOKEN=x=y
a\\=b = 1
twice=1
twice=2
"""


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        ("database.pool.size", "12", b"size = 10", b"size = 12"),
        ("indented", "c", b"indented:  a b  ", b"indented:  c"),
        ("long", "1", b"one \\\n    two", b"1"),
        ("empty", "null", b"empty=", b"empty=null"),
        ("TOKEN", "z", b"x=y", b"z"),
        ('"a=b"', "2", b"a\\=b = 1", b"a\\=b = 2"),
        ("twice", "3", b"twice=2", b"twice=3"),
    ],
)
def test_set_a_key(path: str, value: str, old: bytes, new: bytes) -> None:
    assert PROPERTIES.count(old) == 1
    splices = set_path(Format.PROPERTIES, PROPERTIES, path, value)
    assert apply_to(PROPERTIES, splices) == PROPERTIES.replace(old, new)


@pytest.mark.parametrize(
    ("data", "path", "value", "expected"),
    [
        (b"", "a.b", "1", b"a.b=1\n"),
        (b"a = 1", "b", "2", b"a = 1\nb = 2\n"),
        (b"a: 1\r\n# end\r\n", "b", "2", b"a: 1\r\n# end\r\nb: 2\r\n"),
        (b"a=1\n", "servers[0].host", "x", b"a=1\nservers[0].host=x\n"),
        (b"a=1\n", '"x=y z"', "1", b"a=1\nx\\=y z=1\n"),
        (b"a=1\n", '"#x"', "1", b"a=1\n\\#x=1\n"),
        (b"\xef\xbb\xbfa=1\n", "a", "2", b"\xef\xbb\xbfa=2\n"),
        (
            b"; ini\n[db]\nhost = a\n\n[web]\n",
            "db.port",
            "1",
            b"; ini\n[db]\nhost = a\nport = 1\n\n[web]\n",
        ),
        (b"[db]\nhost = a\n", "db.host", "b", b"[db]\nhost = b\n"),
        (b"[db]\nhost = a\n", "other", "b", b"other=b\n[db]\nhost = a\n"),
        (b"[db]\n[web]\nx=1\n", "db.y", "1", b"[db]\ny=1\n[web]\nx=1\n"),
    ],
)
def test_add_a_key(data: bytes, path: str, value: str, expected: bytes) -> None:
    result = apply_to(data, set_path(Format.PROPERTIES, data, path, value))
    assert result == expected
    assert get_path(Format.PROPERTIES, result, path) == value.encode()
    assert set_path(Format.PROPERTIES, result, path, value) == ()


def test_text_is_escaped_and_lines_are_not_broken() -> None:
    (splice,) = set_path(Format.PROPERTIES, b"", "a", " C:\\x\ny", as_text=True)
    assert splice.data == b"a=\\ C:\\\\x\\ny\n"
    for value in ("two\nlines", "ends in \\", " blank first"):
        with pytest.raises(EditRefusedError):
            set_path(Format.PROPERTIES, b"", "a", value)
    with pytest.raises(EditRefusedError, match="lines that go on"):
        set_path(Format.PROPERTIES, b"b=1\\", "a", "1")
    with pytest.raises(InvalidPathError):
        set_path(Format.PROPERTIES, b"", "a[-]", "1")


def test_unset_removes_every_line_of_a_key() -> None:
    for path, gone in [
        ("twice", b"twice=1\ntwice=2\n"),
        ("long", b"long = one \\\n    two\n"),
        ("indented", b"  indented:  a b  \r\n"),
    ]:
        splices = unset_path(Format.PROPERTIES, PROPERTIES, path)
        assert apply_to(PROPERTIES, splices) == PROPERTIES.replace(gone, b"")
    with pytest.raises(PathNotFoundError):
        unset_path(Format.PROPERTIES, PROPERTIES, "comment")


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [
        (b"a=1\nnothing\n", 2, 1),
        (b"a=1\n =x\n", 2, 2),
        (b"a=\xff", 1, 3),
        (b"a" * 99 + b" " * 99_999, 1, 1),
    ],
)
def test_invalid_properties(data: bytes, line: int, column: int) -> None:
    with pytest.raises(InvalidContentError) as caught:
        validate(Format.PROPERTIES, data)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_valid_properties() -> None:
    validate(Format.PROPERTIES, PROPERTIES)
    validate(Format.PROPERTIES, b"")


LAUGHS = b'<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><x>&b;</x>'


@pytest.mark.parametrize(
    ("data", "line", "column", "problem"),
    [
        (b"<a>\n  <b></a>", 2, 8, "mismatched tag"),
        (b"", 1, 1, "no element found"),
        (b"<a>&nbsp;</a>", 1, 4, "undefined entity"),
        (b"<a>\xff</a>", 1, 4, "invalid token"),
        (LAUGHS, 1, 13, "remove it"),
        (
            b'<?xml version="1.0"?>\n<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>',
            2,
            40,
            "remove it",
        ),
    ],
)
def test_invalid_xml(data: bytes, line: int, column: int, problem: str) -> None:
    with pytest.raises(InvalidContentError, match=re.escape(problem)) as caught:
        validate(Format.XML, data)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_valid_xml() -> None:
    validate(Format.XML, '<?xml version="1.0"?><a b="1">é&amp;<!-- c --></a>'.encode())
