"""TOML configurations: positions of errors, and edits in the right table."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.config.formats.format import Format, get_path, set_path, unset_path, validate
from swell.config.formats.path import show_path
from swell.config.formats.toml_text import dotted, inline
from swell.config.splices import apply_to
from swell.errors import EditRefusedError, InvalidContentError, PathNotFoundError

TEXT = """\
# Top comment
title = 'x'   # a title

[database]   # main
  url = "db://é"
  ports = [
    1,  # one
    2   # two
  ]
  limits.cpu = 2

# about the pool
[database.pool]
size=10
opts = {a = 1, b.c = [1, 2]}

[[servers]]
host = "a"
[servers.tls]
on = true

[[servers]]
host = "b"   # second

[x.y]
z = 1
"""
DATA = TEXT.encode()


def after_set(data: bytes, path: str, value: str, as_text: bool = False) -> bytes:
    return apply_to(data, set_path(Format.TOML, data, path, value, as_text))


def after_unset(data: bytes, path: str) -> bytes:
    return apply_to(data, unset_path(Format.TOML, data, path))


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        ("title", "y", "'x'", "'y'"),
        ("title", "it's", "'x'", '"it\'s"'),
        ("database.url", "db://ü", '"db://é"', '"db://ü"'),
        ("database.pool.size", "2020-01-01", "size=10", "size=2020-01-01"),
        ("database.pool.max", "20", "b.c = [1, 2]}\n", "b.c = [1, 2]}\nmax = 20\n"),
        ("database.pool.opts.b.c[-]", "3", "[1, 2]", "[1, 2, 3]"),
        ("database.pool.opts.b.d", "x", "[1, 2]}", '[1, 2], b.d = "x"}'),
        ("database.pool.opts.a", '{"k": [1]}', "a = 1", "a = {k = [1]}"),
        ("database.ports[-]", "3", "2   # two\n", "2,   # two\n    3\n"),
        ("database.ports[0]", "9", "1,  # one", "9,  # one"),
        ("database.limits.mem", "1", "cpu = 2\n", "cpu = 2\n  limits.mem = 1\n"),
        ("database.user", "me", "cpu = 2\n", 'cpu = 2\n  user = "me"\n'),
        (
            "database.tls.on",
            "true",
            "b.c = [1, 2]}\n",
            "b.c = [1, 2]}\n\n[database.tls]\non = true\n",
        ),
        ("servers[0].port", "1", 'host = "a"\n', 'host = "a"\nport = 1\n'),
        ("servers[1].port", "1", "# second\n", "# second\nport = 1\n"),
        ("servers[0].tls.ca", "f", "on = true\n", 'on = true\nca = "f"\n'),
        (
            "servers[-].host",
            "c",
            "# second\n",
            '# second\n\n[[servers]]\nhost = "c"\n',
        ),
        (
            "servers[-]",
            '{"host": "c", "n": 1}',
            "# second\n",
            '# second\n\n[[servers]]\nhost = "c"\nn = 1\n',
        ),
        ("top", "1", "# a title\n", "# a title\ntop = 1\n"),
        ("x.k", "1", "z = 1\n", "z = 1\n\n[x]\nk = 1\n"),
        ('"a.b".c', "1", "z = 1\n", 'z = 1\n\n["a.b"]\nc = 1\n'),
        ("list[-].a", "1", "# a title\n", "# a title\nlist = [{a = 1}]\n"),
    ],
)
def test_set(path: str, value: str, old: str, new: str) -> None:
    assert TEXT.count(old) == 1
    assert after_set(DATA, path, value).decode() == TEXT.replace(old, new)


@pytest.mark.parametrize(
    ("before", "path", "value", "after"),
    [
        ("", "a", "1", "a = 1\n"),
        ("", "a.b.c", "1", "[a.b]\nc = 1\n"),
        ("# head\n\n# about t\n[t]\n", "a", "1", "# head\n\na = 1\n\n# about t\n[t]\n"),
        ("[t]\n\n[u]\nx = 1", "t.a", "1", "[t]\na = 1\n\n[u]\nx = 1"),
        ("[u]\r\nx = 1\r\n", "u.v.w", "1", "[u]\r\nx = 1\r\n\r\n[u.v]\r\nw = 1\r\n"),
        ("a = [\n  1,\n]\n", "a[-]", "2", "a = [\n  1,\n  2,\n]\n"),
        ("a = {}\n", "a.b.c", "2", "a = {b.c = 2}\n"),
        ('a = """x # y\n"z" """ # c\nb = 1\n', "b", "2", 'a = """x # y\n"z" """ # c\nb = 2\n'),
        ("a = 1\n", "a", "1.0", "a = 1.0\n"),
        ("a = 1\n", "a", "[x", 'a = "[x"\n'),
        ("a = 1\n", "a", "1\n[b]", 'a = "1\\n[b]"\n'),
        ("[[a]]\n[[a.b]]\nx = 1\n[[a]]\n", "a[0].b[-].x", "2", None),
    ],
)
def test_odd_layouts(before: str, path: str, value: str, after: str | None) -> None:
    if after is None:
        after = "[[a]]\n[[a.b]]\nx = 1\n\n[[a.b]]\nx = 2\n[[a]]\n"
    assert after_set(before.encode(), path, value).decode() == after


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("title", "title = 'x'   # a title\n", ""),
        ("database.ports", "  ports = [\n    1,  # one\n    2   # two\n  ]\n", ""),
        ("database.ports[1]", "1,  # one\n    2   # two", "1  # one\n       # two"),
        ("database.limits.cpu", "limits.cpu = 2", "limits = {}"),
        ("database.limits", "  limits.cpu = 2\n", ""),
        ("database.pool.opts.b.c[0]", "[1, 2]", "[2]"),
        ("database.pool.opts.b.c", "b.c = [1, 2]", "b = {}"),
        ("servers[0]", '[[servers]]\nhost = "a"\n[servers.tls]\non = true\n\n', ""),
        ("servers[0].tls", "[servers.tls]\non = true\n\n", ""),
        ("x.y", "[x.y]\nz = 1\n", "[x]\n"),
        ("x", "[x.y]\nz = 1\n", ""),
    ],
)
def test_unset(path: str, old: str, new: str) -> None:
    assert TEXT.count(old) == 1
    assert after_unset(DATA, path).decode() == TEXT.replace(old, new)


def test_present_values_need_no_splice() -> None:
    for path, value in [("title", "x"), ("database.ports", "[1,2]"), ("servers[0].tls.on", "true")]:
        assert set_path(Format.TOML, DATA, path, value) == ()


def test_get() -> None:
    assert get_path(Format.TOML, DATA, "database.pool.opts.b.c") == b"[1, 2]"
    assert get_path(Format.TOML, DATA, "servers[-1].host") == b'"b"'
    with pytest.raises(PathNotFoundError):
        get_path(Format.TOML, DATA, "database.x")
    with pytest.raises(EditRefusedError, match="is a table"):
        get_path(Format.TOML, DATA, "database")


def test_refusals() -> None:
    with pytest.raises(EditRefusedError, match="no null"):
        set_path(Format.TOML, DATA, "title", "null")
    with pytest.raises(EditRefusedError, match="set its keys one by one"):
        set_path(Format.TOML, DATA, "database", "1")
    with pytest.raises(EditRefusedError, match="title is not a mapping"):
        set_path(Format.TOML, DATA, "title.x", "1")
    for edit in (get_path, unset_path):
        with pytest.raises(EditRefusedError, match="part of dotted keys"):
            edit(Format.TOML, DATA, "database.pool.opts.b")
    with pytest.raises(EditRefusedError, match="are tables"):
        set_path(Format.TOML, DATA, "servers[-]", "1")
    with pytest.raises(EditRefusedError, match="put it as a whole"):
        unset_path(Format.TOML, b"[[a]]\nx = 1\n", "a[0]")


@pytest.mark.parametrize(
    ("data", "line", "column", "problem"),
    [
        (b"a = 1\nb = \n", 2, 5, "invalid value"),
        (b"a = 1\na = 2\n", 2, 6, "cannot overwrite"),
        (b"\xc3\xa9 = 1\n", 1, 1, "invalid statement"),
        (b'a = "\xff"\n', 1, 6, "0xff is not UTF-8"),
        (b"a = [1,\n", 2, 1, "invalid value"),
        (b"a = " + b"[" * 300 + b"]" * 300, 1, 260, "nested deeper"),
        (b"a = " + b"[" * 100_000, 1, 260, "nested deeper"),
        (b"x = 1\n" + b"a." * 50_000 + b"a = 1\n", 2, 1, "nested deeper"),
        (b"[" + b"a." * 50_000 + b"a]\n", 1, 1, "nested deeper"),
        (b"x = 1\na = " + b"7" * 5_000, 2, 5, "make it shorter"),
    ],
)
def test_invalid_toml(data: bytes, line: int, column: int, problem: str) -> None:
    with pytest.raises(InvalidContentError, match="line ") as caught:
        validate(Format.TOML, data)
    assert problem in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_valid_toml() -> None:
    for data in (b"", DATA, b"'a.b'.\"c\\u0064\" = 1_000\r\n", b"a = 1979-05-27 07:32:00 # c\n"):
        validate(Format.TOML, data)


keys = st.text("ab. =#'\"-é1", max_size=3)
scalars = st.booleans() | st.integers(-99, 99) | st.text("ab =#'\"\n,]é1\x7f", max_size=4)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2)
)


def written(document: dict[str, Any], with_headers: bool) -> str:
    """A text of the document: tables at its top as sections, or all of it inline."""
    tables = {k: v for k, v in document.items() if isinstance(v, dict)} if with_headers else {}
    lines = [f"{dotted((k,))} = {_text(v)}\n" for k, v in document.items() if k not in tables]
    for name, table in tables.items():
        lines.append(f"\n[{dotted((name,))}] # {name!a}\n")
        lines += [f"  {dotted((key,))} = {_text(value)}\n" for key, value in table.items()]
    return "".join(lines)


def _text(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return "[" + ",\n ".join(_text(inner) for inner in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{dotted((k,))} = {_text(v)}" for k, v in value.items()) + " }"
    return inline(value)


@settings(max_examples=120, deadline=None)
@given(
    document=st.dictionaries(keys, values, max_size=3),
    path=st.lists(keys, min_size=1, max_size=3),
    value=values,
    with_headers=st.booleans(),
)
def test_set_changes_that_path_and_nothing_else(
    document: dict[str, Any], path: list[str], value: Any, with_headers: bool
) -> None:
    data = written(document, with_headers).encode()
    assert tomllib.loads(data.decode()) == document
    present: Any = document
    inner: Any = document
    for key in path[:-1]:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
    text = show_path(tuple(path))
    is_table = isinstance(inner, dict) and isinstance(inner.get(path[-1]), dict)
    if not isinstance(inner, dict) or (is_table and len(path) == 1):
        return
    inner[path[-1]] = value
    result = after_set(data, text, json.dumps(value))
    assert tomllib.loads(result.decode()) == present
    del inner[path[-1]]
    assert tomllib.loads(after_unset(result, text).decode()) == present
