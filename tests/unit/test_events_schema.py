"""The table of events: its Arrow form, its page, and who may import what (PIP-1)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from swell.events import Event, arrow
from swell.events.rows import FORMS
from swell.events.schema import COLUMNS, NAMES, PARTITIONS, Kind

PAGE = Path(__file__).resolve().parents[2] / "docs" / "events.md"


def columns_table() -> str:
    lines = ["| column | type | required | meaning |", "|---|---|---|---|"]
    for one in COLUMNS:
        required = "yes" if one.required else ""
        lines.append(f"| {one.name} | {one.type.value} | {required} | {one.meaning} |")
    return "\n".join(lines)


def kinds_table() -> str:
    filled: dict[Kind, set[str]] = {}
    for form in FORMS.values():
        filled.setdefault(form.kind, set()).update(form.columns)
    lines = ["| kind | columns |", "|---|---|"]
    for kind in Kind:
        if kind in filled:
            names = sorted(filled[kind], key=NAMES.index)
            lines.append(f"| {kind.value} | {', '.join(names)} |")
    return "\n".join(lines)


def part(name: str) -> str:
    """What the page has between the marks of a part."""
    _, _, behind = PAGE.read_text(encoding="utf-8").partition(f"<!-- {name}: ")
    inside, _, _ = behind.partition("<!-- end -->")
    return inside.partition("-->")[2].strip()


def test_the_page_has_the_columns_that_are_declared() -> None:
    assert part("columns") == columns_table()


def test_the_page_says_what_each_kind_fills_in() -> None:
    assert part("kinds") == kinds_table()


def test_the_page_explains_every_kind_that_is_written() -> None:
    _, _, explained = PAGE.read_text(encoding="utf-8").partition("| kind | written by |")
    for form in FORMS.values():
        assert f"\n| {form.kind.value} | " in explained, form.kind


def test_arrow_has_the_declared_columns_exactly() -> None:
    assert tuple(arrow.SCHEMA.names) == NAMES
    for column, field in zip(COLUMNS, arrow.SCHEMA, strict=True):
        assert field.nullable is not column.required, column.name
    assert arrow.SCHEMA.field("at").type == pa.timestamp("us", tz="UTC")
    assert arrow.SCHEMA.field("coordinate").type == pa.list_(pa.float64())
    assert not set(NAMES) & set(PARTITIONS)


@pytest.mark.parametrize("event", FORMS, ids=lambda event: event.__name__)
def test_a_form_names_fields_and_columns_that_exist(event: type[Event]) -> None:
    form = FORMS[event]
    assert set(form.columns) <= set(NAMES)
    for source in form.columns.values():
        holder: type = event
        for name in source.split("."):
            fields = {field.name: field.type for field in msgspec.structs.fields(holder)}
            assert name in fields, source
            holder = fields[name]


def test_commands_and_clients_do_not_import_pyarrow() -> None:
    program = (
        "import sys, swell.cli.main, swell.cli.simulate, swell.client.connection, "
        "swell.cli.hosting, swell.lab.fanout\n"
        "print([name for name in ('pyarrow', 'pyspark', 'pandas') if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert found.stdout.strip() == "[]"
