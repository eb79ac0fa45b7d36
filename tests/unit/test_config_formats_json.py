"""JSON configurations: strict validation with positions, and edits that touch one path only."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.config.formats.format import (
    Format,
    get_path,
    set_path,
    stays_valid,
    unset_path,
    validate,
)
from swell.config.formats.json_scanner import heads, leap, same_key
from swell.config.formats.json_validity import QUICK_BYTES_MAX, is_plainly_valid
from swell.config.formats.path import show_path
from swell.config.splices import Splice, apply_to
from swell.errors import (
    EditRefusedError,
    InvalidContentError,
    PathNotFoundError,
)

INDENTED = b"""{
    "database": {
        "url" : "db://x",
        "pool": { "size":  10, "names": [ "a" ] },
        "empty": {},
        "none": []
    },

    "servers": [
        {"host": "a.b", "port": 1},
        {"host": "c.d", "port": 2}
    ]
}
"""
COMPACT = b'{"a":{"b":1},"c":[1,2],"d":[3]}'


def after_set(data: bytes, path: str, value: str, as_text: bool = False) -> bytes:
    result = apply_to(data, set_path(Format.JSON, data, path, value, as_text))
    validate(Format.JSON, result)
    return result


def after_unset(data: bytes, path: str) -> bytes:
    result = apply_to(data, unset_path(Format.JSON, data, path))
    validate(Format.JSON, result)
    return result


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        ("database.pool.size", "12", b'"size":  10', b'"size":  12'),
        ("database.url", "db://y", b'"db://x"', b'"db://y"'),
        ("servers[1].port", "null", b'"port": 2', b'"port": null'),
        ("servers[-1].host", "e", b'"c.d"', b'"e"'),
        ("database.pool.names[-]", "b", b'[ "a" ]', b'[ "a", "b" ]'),
        ("database.pool.max", "20", b'[ "a" ] }', b'[ "a" ], "max": 20 }'),
        ("servers[0].tls.on", "true", b'"port": 1}', b'"port": 1, "tls": {"on": true}}'),
        (
            "database.empty.x",
            "1",
            b'"empty": {}',
            b'"empty": {\n            "x": 1\n        }',
        ),
        ("database.none[-]", "1", b'"none": []', b'"none": [\n            1\n        ]'),
        (
            "database.more.deep",
            '{"k": [1]}',
            b'"none": []',
            b'"none": [],\n        "more": {\n            "deep": {"k": [1]}\n        }',
        ),
        (
            "servers[-].host",
            "é",
            b"2}\n",
            '2},\n        {\n            "host": "é"\n        }\n'.encode(),
        ),
        ("top", "x", b"    ]\n}", b'    ],\n    "top": "x"\n}'),
        ('"a.b"."="', "1", b"    ]\n}", b'    ],\n    "a.b": {\n        "=": 1\n    }\n}'),
        ("list[-]", "1", b"    ]\n}", b'    ],\n    "list": [\n        1\n    ]\n}'),
    ],
)
def test_set_in_indented_text(path: str, value: str, old: bytes, new: bytes) -> None:
    assert INDENTED.count(old) == 1
    assert after_set(INDENTED, path, value) == INDENTED.replace(old, new)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("a.b", "2", b'{"a":{"b":2},"c":[1,2],"d":[3]}'),
        ("a.x.y", "2", b'{"a":{"b":1,"x":{"y":2}},"c":[1,2],"d":[3]}'),
        ("d[-]", "4", b'{"a":{"b":1},"c":[1,2],"d":[3,4]}'),
        ("c[0]", "[]", b'{"a":{"b":1},"c":[[],2],"d":[3]}'),
        ("e", "10s", b'{"a":{"b":1},"c":[1,2],"d":[3],"e":"10s"}'),
    ],
)
def test_set_in_compact_text(path: str, value: str, expected: bytes) -> None:
    assert after_set(COMPACT, path, value) == expected


def test_line_ends_of_the_text_are_kept() -> None:
    data = b'{\r\n\t"a": {},\r\n\t"b": 1\r\n}\r\n'
    assert after_set(data, "a.x", "1") == (
        b'{\r\n\t"a": {\r\n\t\t"x": 1\r\n\t},\r\n\t"b": 1\r\n}\r\n'
    )


@pytest.mark.parametrize(("data", "expected"), [(b"{}", b'{"a": 1}'), (b"{\n}", b'{\n  "a": 1\n}')])
def test_set_in_an_empty_object(data: bytes, expected: bytes) -> None:
    assert after_set(data, "a", "1") == expected


@pytest.mark.parametrize(
    ("path", "value", "as_text"),
    [
        ("database.pool.size", "10", False),
        ("database.pool", '{"names":["a"],"size":10}', False),
        ("servers[0].host", "a.b", False),
        ("servers[0].host", '"a\\u002eb"', False),
        ("database.url", "db://x", True),
    ],
)
def test_the_present_value_needs_no_splice(path: str, value: str, as_text: bool) -> None:
    assert set_path(Format.JSON, INDENTED, path, value, as_text) == ()


def test_only_what_differs_is_spliced() -> None:
    (splice,) = set_path(Format.JSON, INDENTED, "database.pool.size", "12")
    assert (splice.length, splice.data) == (1, b"2")


def test_numbers_keep_their_text_and_text_stays_text() -> None:
    assert after_set(b'{"a": 1}', "a", "1.0") == b'{"a": 1.0}'
    assert after_set(b'{"a": 1}', "a", "1", as_text=True) == b'{"a": "1"}'
    assert after_set(b'{"a": 1}', "a", "NaN") == b'{"a": "NaN"}'
    assert after_set(b'{"a": 1}', "a", '{"b": ') == b'{"a": "{\\"b\\": "}'


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("database.url", b'"url" : "db://x",\n        ', b""),
        ("database.none", b',\n        "none": []', b""),
        ("database.pool.names[0]", b'[ "a" ]', b"[]"),
        ("servers[0]", b'{"host": "a.b", "port": 1},\n        ', b""),
        ("servers[-1]", b',\n        {"host": "c.d", "port": 2}', b""),
    ],
)
def test_unset(path: str, old: bytes, new: bytes) -> None:
    assert INDENTED.count(old) == 1
    assert after_unset(INDENTED, path) == INDENTED.replace(old, new)


def test_get_returns_the_text_as_it_is_written() -> None:
    assert get_path(Format.JSON, INDENTED, "database.pool") == b'{ "size":  10, "names": [ "a" ] }'
    assert get_path(Format.JSON, INDENTED, "servers[-2].host") == b'"a.b"'
    assert get_path(Format.JSON, b'{"\\u0061": 1}', "a") == b"1"


@pytest.mark.parametrize("path", ["x", "database.x", "database.x.y", "servers[2]", "servers[-3]"])
def test_what_is_not_there(path: str) -> None:
    with pytest.raises(PathNotFoundError, match="there is no"):
        get_path(Format.JSON, INDENTED, path)
    with pytest.raises(PathNotFoundError, match="there is no"):
        unset_path(Format.JSON, INDENTED, path)


def test_an_index_is_never_made() -> None:
    with pytest.raises(PathNotFoundError, match=r"servers\[-\] appends"):
        set_path(Format.JSON, INDENTED, "servers[2].host", "x")
    with pytest.raises(PathNotFoundError, match=r"new\[-\] appends"):
        set_path(Format.JSON, INDENTED, "new[0]", "x")


@pytest.mark.parametrize("path", ["database.url.x", "servers.x", "database[0]", "database.url[-]"])
def test_a_path_through_something_else(path: str) -> None:
    with pytest.raises(EditRefusedError, match="is not a"):
        set_path(Format.JSON, INDENTED, path, "1")


@pytest.mark.parametrize(
    ("data", "line", "column", "problem"),
    [
        (b"", 1, 1, "expected a value"),
        (b'{"a": 1\n "b": 2}', 2, 2, "expected a comma"),
        (b'{\n  "a": tru\n}', 2, 8, "expected a value"),
        (b'{\n"\xc3\xa9": 1,\n "a": NaN}', 3, 7, "NaN is not JSON"),
        (b"[1, -Infinity]", 1, 5, "-Infinity is not JSON"),
        (b'{"a": {"x": 1},\n "b": {"x": 1, "y": 2,\n  "x": 3}}', 3, 3, "'x' is here twice"),
        (b'{"a": 1, "\\u0061": 2}', 1, 10, "'a' is here twice"),
        (b'["\xc3\xa9", "\xff"]', 1, 8, "0xff is not UTF-8"),
        (b"\xef\xbb\xbf{}", 1, 1, "byte order mark"),
        (b'["\\\\ud800", "\\ud83d\\ude00", "\\ud800"]', 1, 30, "surrogate"),
        (b'["a\x01b"]', 1, 4, "control character"),
        (b"{} {}", 1, 4, "remove it"),
        (b'["abc', 1, 2, "never closed"),
        (b"[01]", 1, 3, "expected a comma"),
    ],
)
def test_invalid_json(data: bytes, line: int, column: int, problem: str) -> None:
    with pytest.raises(InvalidContentError) as caught:
        validate(Format.JSON, data)
    error = caught.value
    assert (error.line, error.column) == (line, column)
    assert problem in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.line, again.column, str(again)) == (line, column, str(error))


def test_nesting_is_bounded() -> None:
    validate(Format.JSON, b"[" * 256 + b"]" * 256)
    for data in (b"[" * 257 + b"]" * 257, b"[" * 100_000, b'{"a":' * 100_000):
        with pytest.raises(InvalidContentError, match="nested deeper") as caught:
            validate(Format.JSON, data)
        assert caught.value.line == 1
    deep = b"[" * 200 + b"]" * 200
    with pytest.raises(InvalidContentError, match="nested deeper"):
        set_path(Format.JSON, b"{}", "a" + ".a" * 99, deep.decode())


def test_long_numbers_cost_nothing() -> None:
    data = b'{"a": ' + b"7" * 1_000_000 + b"}"
    validate(Format.JSON, data)
    assert after_set(data, "b", "1").endswith(b',"b": 1}') is False
    assert after_set(data, "b", "1").endswith(b', "b": 1}')


def test_an_edit_notices_broken_text_on_its_way() -> None:
    with pytest.raises(InvalidContentError, match="line 2, column 2: expected a comma"):
        set_path(Format.JSON, b'{"a": 1\n "b": 2}', "b", "1")


keys = st.text(min_size=0, max_size=4)
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)
)


@settings(max_examples=80, deadline=None)
@given(
    document=st.dictionaries(keys, values, max_size=4),
    path=st.lists(keys, min_size=1, max_size=3),
    value=values,
    indent=st.sampled_from([None, 1, 4]),
    ascii_only=st.booleans(),
)
def test_set_changes_that_path_and_nothing_else(
    document: dict[str, Any], path: list[str], value: Any, indent: int | None, ascii_only: bool
) -> None:
    data = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode()
    inner: Any = document
    for key in path[:-1]:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
    if not isinstance(inner, dict):
        with pytest.raises(EditRefusedError):
            set_path(Format.JSON, data, show_path(tuple(path)), json.dumps(value))
        return
    inner[path[-1]] = value
    result = after_set(data, show_path(tuple(path)), json.dumps(value))
    assert json.loads(result) == document
    del inner[path[-1]]
    assert json.loads(after_unset(result, show_path(tuple(path)))) == document


# The quick ways agree with the thorough ones.

_KEYS = st.sampled_from(["a", "b", ":", ",", "{", "", "a b", "é", '"', "\\", '"a":', "b]"])
_SCALARS = st.none() | st.booleans() | st.integers() | _KEYS | st.floats(allow_nan=False)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4)
)


@given(_VALUES, st.sampled_from([None, 1, "\t"]), st.sampled_from([(",", ":"), (" , ", " :\n")]))
def test_a_leap_finds_what_the_scanner_finds(
    value: Any, indent: Any, separators: tuple[str, str]
) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators).encode()
    for opening in [place for place, byte in enumerate(text) if byte == ord("{")]:
        if text.count(b'"', 0, opening) % 2 or b"\\" in text[:opening]:
            continue  # perhaps inside a string
        scanned = list(heads(text, opening))[:-1]
        for key in ("a", ",", ":", "", "a b", "é", '"a":'):
            encoded = json.dumps(key, ensure_ascii=False).encode()
            found = leap(text, opening, encoded)
            if found is not None:
                first = next(head for head in scanned if same_key(head.key, key, encoded))
                assert found == (first.start, first.before)
                following = list(heads(text, opening, found.start, found.before))
                assert following[:-1] == scanned[scanned.index(first) :]


def test_a_leap_is_used_for_what_is_flat_and_only_for_that() -> None:
    flat = b'{ "a": "key", "key" : 1,\n "b": true, "c": 2 }'
    found = leap(flat, 0, b'"c"')
    assert found is not None
    assert flat[found.start :].startswith(b'"c"')
    assert found.before is not None
    assert flat[found.before.start : found.before.end] == b'"b": true'
    assert flat[found.before.value : found.before.end] == b"true"
    found = leap(flat, 0, b'"key"')
    assert found is not None
    assert found.start == flat.index(b'"key" :')
    for text in (b'{"a":{"key":1},"key":2}', b'{"\\u006bey":1,"key":2}', b'{"a":1,"b":"key"}'):
        assert leap(text, 0, b'"key"') is None
    inner = b'[{"a":1},{"key":2}]'
    assert leap(inner, 1, b'"key"') is None


@given(_VALUES, st.data())
def test_what_is_plainly_valid_is_valid(value: Any, data: st.DataObject) -> None:
    text = bytearray(json.dumps(value, ensure_ascii=data.draw(st.booleans())).encode())
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(text)))
        text[place : place + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b'"', b":", b",", b'"a":1,', b"\\", b" ", b"0", b"\n", b"}"])
        )
    try:
        text.decode()
    except UnicodeDecodeError:
        return
    if is_plainly_valid(bytes(text)):
        assert strictly_valid(bytes(text))


def strictly_valid(text: bytes) -> bool:
    """By the thorough way alone, which long texts take."""
    try:
        validate(Format.JSON, text + b" " * QUICK_BYTES_MAX)
    except InvalidContentError:
        return False
    return True


def test_a_plain_document_is_seen_to_be_valid_and_a_repeated_key_is_not() -> None:
    assert is_plainly_valid(b'{"a": 1, "b": {"a": [{"a": "x:y"}]}, "c" :"http://x"}')
    assert is_plainly_valid(b'{"a":{"b":1},"c":[1,2],"d":[3]}')
    for text in (
        b'{"a":1,"a":2}',
        b'{"a":"b:","a":2}',
        b'[{"a":1,"a":2}]',
        b"[" * 257 + b"]" * 257,
    ):
        assert not is_plainly_valid(text)
        assert not strictly_valid(text)


@given(_VALUES, st.data())
def test_what_stays_valid_is_valid(value: Any, data: st.DataObject) -> None:
    base = json.dumps(value, ensure_ascii=data.draw(st.booleans())).encode()
    offset = data.draw(st.integers(0, len(base)))
    length = data.draw(st.integers(0, min(3, len(base) - offset)))
    new = data.draw(st.sampled_from([b"x", b"", b"a b", b'"', b"\\", b"\xc3", b"\n", b"1,2", b":"]))
    if length or new:
        splices = (Splice(offset, length, new),)
        if stays_valid(Format.JSON, base, splices):
            assert strictly_valid(apply_to(base, splices))


def test_a_changed_text_stays_valid_and_a_changed_key_may_not() -> None:
    base = b'{"a": "text", "b" : "b", "c": 1}'
    text, key, number = base.index(b"ext"), base.index(b'b" :'), base.index(b"1")
    assert stays_valid(Format.JSON, base, (Splice(text, 3, b"ea {time}"),))
    assert stays_valid(Format.JSON, base, (Splice(text, 0, b"x"),))
    for splice in (Splice(key, 1, b"a"), Splice(number, 1, b"01"), Splice(text, 3, b'"')):
        assert not stays_valid(Format.JSON, base, (splice,))
    escaped = b'{"a": "\\"", "b": "text"}'
    assert not stays_valid(Format.JSON, escaped, (Splice(escaped.index(b"ext"), 1, b"x"),))
