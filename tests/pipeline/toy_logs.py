"""Small event logs on disk, laid out and encoded as writers do it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from swell.events.arrow import SCHEMA, parquet_options

BEGIN = datetime(2026, 11, 11, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def row(number: int, node: str = "n1", start: int = 1, **fields: Any) -> dict[str, Any]:
    """A row with everything that every row has; its time is `number` seconds after `BEGIN`."""
    common = {
        "schema": 1,
        "run": "test",
        "at": at(number),
        "mono_us": number * 1_000_000,
        "node": node,
        "role": "node",
        "start": start,
        "row": number,
    }
    return common | fields


def write_file(
    log: Path, kind: str, name: str, rows: Iterable[Mapping[str, Any]], date: str = "2026-11-11"
) -> Path:
    """One complete file; `name` is NODE-START-N."""
    path = log / f"date={date}" / f"kind={kind}" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(pa.Table.from_pylist([dict(one) for one in rows], schema=SCHEMA), path)
    return path


def write_table(table: pa.Table, path: Path) -> None:
    """A file with these columns."""
    pq.write_table(table, path, store_schema=False, **parquet_options())
