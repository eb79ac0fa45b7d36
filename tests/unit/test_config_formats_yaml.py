"""YAML configurations: nothing is executed or blown up, and edits leave the rest as written."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from swell.config.formats.format import Format, get_path, set_path, unset_path, validate
from swell.config.formats.path import show_path
from swell.config.splices import apply_to
from swell.errors import EditRefusedError, InvalidContentError, PathNotFoundError

BLOCK = """\
# Top comment
database:   # main
    url: 'db://x'   # where
    pool:
        size: 10
        # about names
        names: [a, "b"]   # few

    empty:
servers:
- host: a.b   # first
  port: 1
- host: c.d
  port: 2
flow: {x: 1, y: {z: é}}
text: |
    line one
    line two

last: "q"   # the end
""".encode()


def load(data: bytes) -> Any:
    return yaml.load(data, yaml.SafeLoader)  # the one in Python, not libyaml


def after_set(data: bytes, path: str, value: str, as_text: bool = False) -> bytes:
    result = apply_to(data, set_path(Format.YAML, data, path, value, as_text))
    validate(Format.YAML, result)
    return result


def after_unset(data: bytes, path: str) -> bytes:
    return apply_to(data, unset_path(Format.YAML, data, path))


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        ("database.pool.size", "12", "size: 10", "size: 12"),
        ("database.url", "db://y", "'db://x'", "'db://y'"),
        ("database.url", "it's", "'db://x'", "'it''s'"),
        ("last", "10", '"q"', "10"),
        ("last", "10", '"q"   # the end\n', "10   # the end\n"),
        ("database.pool.size", "yes", "size: 10", 'size: "yes"'),
        ("database.pool.size", "plain text", "size: 10", "size: plain text"),
        ("database.pool.names[-]", "c d", '[a, "b"]', '[a, "b", c d]'),
        ("database.pool.names[0]", "x", "[a,", "[x,"),
        ("database.pool.max", "20", "# few\n", "# few\n        max: 20\n"),
        ("database.pool", "5", "pool:\n        size: 10", None),
        ("database.empty", "1", "empty:", "empty: 1"),
        ("database.empty.x.z", "1", "empty:\n", "empty:\n        x:\n            z: 1\n"),
        ("servers[0].port", "8", "port: 1", "port: 8"),
        ("servers[0].tls.on", "true", "port: 1\n", 'port: 1\n  tls:\n      "on": true\n'),
        ("servers[-].host", "e", "port: 2\n", "port: 2\n- host: e\n"),
        ("servers[-]", '{"host": "e:1"}', "port: 2\n", 'port: 2\n- {host: "e:1"}\n'),
        ("flow.y.z", "ü", "é", '"ü"'),
        ("flow.y.k.l", "1", "é}", "é, k: {l: 1}}"),
        ("text", "short", "|\n    line one\n    line two", "short"),
        ("new.a", "1", "# the end\n", "# the end\nnew:\n    a: 1\n"),
        ("new[-].a", "1", "# the end\n", "# the end\nnew:\n    - a: 1\n"),
        ('"k: v"', "null", "# the end\n", '# the end\n"k: v": null\n'),
    ],
)
def test_set(path: str, value: str, old: str, new: str | None) -> None:
    assert BLOCK.count(old.encode()) == 1
    result = after_set(BLOCK, path, value)
    if new is not None:
        assert result.decode() == BLOCK.decode().replace(old, new)
    assert b"# Top comment\ndatabase:   # main\n" in result


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("database.pool.size", "        size: 10\n", ""),
        ("database.url", "    url: 'db://x'   # where\n", ""),
        ("database.pool.names[0]", '[a, "b"]', '["b"]'),
        ("database.pool.names[1]", '[a, "b"]', "[a]"),
        ("servers[0].host", "host: a.b   # first\n  ", ""),
        ("servers[1]", "- host: c.d\n  port: 2\n", ""),
        ("servers[0]", "- host: a.b   # first\n  port: 1\n", ""),
        ("flow.y.z", "{z: é}", "{}"),
        ("flow.x", "x: 1, ", ""),
        ("text", "text: |\n    line one\n    line two\n", ""),
    ],
)
def test_unset(path: str, old: str, new: str) -> None:
    assert BLOCK.count(old.encode()) == 1
    assert after_unset(BLOCK, path).decode() == BLOCK.decode().replace(old, new)


@pytest.mark.parametrize(
    ("before", "path", "after"),
    [
        ("a:\n  # why\n  b: 1\nc: 2\n", "a.b", "a:\n  # why\n  {}\nc: 2\n"),
        ("a:\n- x\nc: 2\n", "a[0]", "a:\n []\nc: 2\n"),
        ("- a: 1\n", "[0].a", "- {}\n"),
        ("a: 1\n", "a", "{}\n"),
        ("{a: 1, # one\n b: 2}\n", "b", "{a: 1 # one\n }\n"),
        ("[1, # one\n 2, # two\n 3]\n", "[1]", "[1, # one\n  # two\n 3]\n"),
    ],
)
def test_the_last_entry_leaves_an_empty_collection(before: str, path: str, after: str) -> None:
    assert after_unset(before.encode(), path).decode() == after


@pytest.mark.parametrize(
    ("before", "path", "value", "after"),
    [
        ("", "a.b", "1", "a:\n  b: 1\n"),
        ("# nothing yet", "a", "x", "# nothing yet\na: x\n"),
        ("---\n", "a", "x", "---\na: x\n"),
        ("a: 1", "b", "2", "a: 1\nb: 2\n"),
        ("a: 1\r\nb:\r\n  c: 2\r\n", "b.d.e", "1", "a: 1\r\nb:\r\n  c: 2\r\n  d:\r\n    e: 1\r\n"),
        ("\ufeffé: 1 # ö\nb: 2\n", "b", "3", "\ufeffé: 1 # ö\nb: 3\n"),
        ('{"a": 1}\n', "b", "x", '{"a": 1, "b": x}\n'),
        ("{\n  a: 1,  # one\n  b: 2  # two\n}\n", "c", "3", None),
        ("a: |+\n  x\n\nb: 1\n", "c", "2", "a: |+\n  x\n\nb: 1\nc: 2\n"),
        ("r:\n  a: |+\n    x\n\nb: 1\n", "r.c", "2", "r:\n  a: |+\n    x\n\n  c: 2\nb: 1\n"),
        ("- - 1\n  - 2\n", "[0][-]", "3", "- - 1\n  - 2\n  - 3\n"),
        ("-\n- b\n", "[0].x", "1", "- x: 1\n- b\n"),
        ("a: !!str 1\n", "a", "2", "a: 2\n"),
        ("a:\n- 1\n- 2\nb: 1\n", "a", "x", "a: x\nb: 1\n"),
        ("8080: x\n", "8080", "z", "8080: z\n"),
        ("a: {b: }\n", "a.b.c", "1", "a: {b: {c: 1}}\n"),
        ("a: 'x'\n", "a", "two\nlines", 'a: "two\\nlines"\n'),
    ],
)
def test_odd_layouts(before: str, path: str, value: str, after: str | None) -> None:
    result = after_set(before.encode(), path, value).decode()
    if after is None:
        after = "{\n  a: 1,  # one\n  b: 2,  # two\n  c: 3\n}\n"
    assert result == after


ALIASED = b"""\
base: &base {x: 1, deep: {y: 2}}
here:
  <<: *base
  z: 3
same: *base
"""


def test_aliases_and_merges() -> None:
    assert get_path(Format.YAML, ALIASED, "here.deep.y") == b"2"
    assert get_path(Format.YAML, ALIASED, "same.x") == b"1"
    assert after_set(ALIASED, "here.x", "9") == ALIASED.replace(b"z: 3\n", b"z: 3\n  x: 9\n")
    assert after_set(ALIASED, "same", "9") == ALIASED.replace(b"same: *base", b"same: 9")
    assert after_set(ALIASED, "base.x", "9") == ALIASED.replace(b"x: 1", b"x: 9")
    for path in ("same.x", "here.deep.y"):
        with pytest.raises(EditRefusedError, match="written elsewhere"):
            set_path(Format.YAML, ALIASED, path, "1")
    with pytest.raises(EditRefusedError, match="written elsewhere"):
        unset_path(Format.YAML, ALIASED, "here.x")


def test_an_anchor_that_is_used_stays() -> None:
    with pytest.raises(EditRefusedError, match="put it as a whole"):
        unset_path(Format.YAML, ALIASED, "base")
    assert after_set(ALIASED, "base", '{"x": 2}').startswith(b"base: &base {x: 2}\n")


def test_present_values_need_no_splice() -> None:
    for path, value in [
        ("database.pool.size", "10"),
        ("last", "q"),
        ("flow", '{"y": {"z": "\\u00e9"}, "x": 1}'),
        ("text", '"line one\\nline two\\n"'),
        ("database.empty", "null"),
    ]:
        assert set_path(Format.YAML, BLOCK, path, value) == ()


def test_get() -> None:
    assert get_path(Format.YAML, BLOCK, "servers[1]") == b"host: c.d\nport: 2"
    assert get_path(Format.YAML, BLOCK, "database.url") == b"'db://x'"
    for path in ("x", "database.x", "servers[5]"):
        with pytest.raises(PathNotFoundError):
            get_path(Format.YAML, BLOCK, path)
    with pytest.raises(EditRefusedError, match=r"database\.url is not a mapping"):
        set_path(Format.YAML, BLOCK, "database.url.x", "1")
    with pytest.raises(EditRefusedError, match="2 YAML documents"):
        set_path(Format.YAML, b"a: 1\n---\nb: 1\n", "a", "1")


BOMB = b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 10)) for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("data", "line", "column", "problem"),
    [
        (b"a: 1\nb: c: d\n", 2, 5, "mapping values"),
        (b"a: [1, 2\nb: 1\n", 2, 2, "expected ',' or ']'"),
        (b"a: \x01\n", 1, 4, "control characters"),
        (b"\xc3\xa9: \xff\n", 1, 4, "0xff is not UTF-8"),
        (b"x: 1\na: !!python/object/apply:os.system [ls]\n", 2, 4, "is not allowed"),
        (b"a: !secret x\n", 1, 4, "the tag !secret is not allowed"),
        (b"\xc3\xa9: 1\na: 2\n\xc3\xa9: 3\n", 3, 1, "is here twice"),
        (b"a: *b\n", 1, 4, "no anchor &b"),
        (b"a: &a [*a]\n", 1, 8, "contains itself"),
        (BOMB, 5, None, "much longer than it is written"),
        (b"[" * 300 + b"]" * 300, 1, 257, "nested deeper"),
        (b"{a: " * 100_000, 1, None, "nested deeper"),
        (b"a:\n\t- b\n", 2, 1, "cannot start any token"),
    ],
)
def test_invalid_yaml(data: bytes, line: int, column: int | None, problem: str) -> None:
    with pytest.raises(InvalidContentError, match="line ") as caught:
        validate(Format.YAML, data)
    assert problem in str(caught.value)
    assert caught.value.line == line
    assert column in (None, caught.value.column)


def test_valid_yaml() -> None:
    for data in (b"", b"# c\n", b"a: 1\n---\nb: 2\n", ALIASED, BLOCK, b"&x a: *x\n"[:5] + b": 1\n"):
        validate(Format.YAML, data)


keys = st.text("ab. :#'\"-é1", min_size=1, max_size=3)
scalars = st.none() | st.booleans() | st.integers(-99, 99) | st.text("ab :#'\"\n-é1~", max_size=4)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2)
)


@settings(max_examples=120, deadline=None)
@given(
    document=st.dictionaries(keys, values, min_size=1, max_size=3),
    path=st.lists(keys, min_size=1, max_size=2),
    value=values,
    flow=st.sampled_from([None, False, True]),
)
def test_set_changes_that_path_and_nothing_else(
    document: dict[str, Any], path: list[str], value: Any, flow: bool | None
) -> None:
    data = yaml.safe_dump(document, default_flow_style=flow, allow_unicode=True).encode()
    inner: Any = document
    for key in path[:-1]:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
    text = show_path(tuple(path))
    if not isinstance(inner, dict):
        with pytest.raises(EditRefusedError):
            set_path(Format.YAML, data, text, json.dumps(value))
        return
    inner[path[-1]] = value
    result = after_set(data, text, json.dumps(value))
    assert load(result) == document
    del inner[path[-1]]
    assert load(after_unset(result, text)) == document
