"""The table of events in Arrow's form, and batches of it made from events, column by column.

The only module here that imports pyarrow: it is imported where rows are written or read, and
nowhere else. What all rows of a batch share, or what few lives or records repeat, is spread by
Arrow itself: a row costs Python only its own fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from swell.events.rows import FORMS, TAKEN, Form, Pile, Piles
from swell.events.schema import COLUMNS, NAMES, VERSION, Column, Kind, Type

_TYPES: dict[Type, pa.DataType] = {
    Type.TEXT: pa.string(),
    Type.BYTES: pa.binary(),
    Type.SHORT: pa.int16(),
    Type.INT: pa.int32(),
    Type.LONG: pa.int64(),
    Type.DOUBLE: pa.float64(),
    Type.DOUBLES: pa.list_(pa.float64()),
    Type.TIMESTAMP: pa.timestamp("us", tz="UTC"),
}

_OF_LIFE = ("run", "node", "role", "start", "site", "zone")

CONSTANTS_MAX = 256
"""Constant columns that are kept; each is as long as a batch."""


def field(column: Column) -> pa.Field:
    return pa.field(column.name, _TYPES[column.type], nullable=not column.required)


SCHEMA: pa.Schema = pa.schema([field(column) for column in COLUMNS])
"""Of every file; date and kind are directories."""


pa.array([VERSION], pa.int16())  # what Arrow imports with its first array, it does now


def batches(piles: Piles) -> Iterator[tuple[Kind, pa.RecordBatch]]:
    """The rows of these events, one batch for each type of them."""
    for event, pile in piles.items():
        form = FORMS[event]
        yield form.kind, _batch(form, pile)


def _batch(form: Form, pile: Pile) -> pa.RecordBatch:
    lives, firsts, wall_ns, mono_ns, events = (pile[place::TAKEN] for place in range(TAKEN))
    made = {
        "at": _microseconds(wall_ns).cast(_TYPES[Type.TIMESTAMP]),
        "mono_us": _microseconds(mono_ns),
        **_spread(lives, {name: name for name in _OF_LIFE}),
    }
    if form.shared:
        made |= _spread(list(map(attrgetter(form.shared), events)), form.shared_columns)
    for column, source in form.columns.items():
        if column != form.each:
            made[column] = _array(column, list(map(attrgetter(source), events)))
    if not form.each:
        made["row"] = pa.array(firsts, pa.int64())
        return _complete(made, len(firsts))
    places: list[int] = []
    numbers: list[int] = []
    values: list[Any] = []
    lists = map(attrgetter(form.columns[form.each]), events)
    for place, (first, listed) in enumerate(zip(firsts, lists, strict=True)):
        places.extend(repeat(place, len(listed)))
        numbers.extend(range(first, first + len(listed)))
        values.extend(listed)
    spread = pa.array(places, pa.int32())
    made = {column: one.take(spread) for column, one in made.items()}
    made["row"] = pa.array(numbers, pa.int64())
    made[form.each] = _array(form.each, values)
    return _complete(made, len(values))


def _spread(objects: Sequence[object], columns: Mapping[str, str]) -> dict[str, pa.Array]:
    """Columns of fields of objects of which there are few: each is looked at once."""
    ids = list(map(id, objects))
    few = dict(zip(ids, objects, strict=True))
    spread: pa.Array | None = None
    made = {}
    for column, source in columns.items():
        values = list(map(attrgetter(source), few.values()))
        if values.count(values[0]) == len(values):
            made[column] = _repeated(column, values[0], len(ids))
            continue
        if spread is None:
            places = {name: place for place, name in enumerate(few)}
            spread = pa.array(list(map(places.__getitem__, ids)), pa.int32())
        made[column] = _array(column, values).take(spread)
    return made


def _repeated(column: str, value: object, count: int) -> pa.Array:
    """A slice of one that is kept: most columns of a batch are of this kind."""
    return _long(column, value, 1 << (count - 1).bit_length()).slice(0, count)


@lru_cache(CONSTANTS_MAX)
def _long(column: str, value: object, count: int) -> pa.Array:
    type_ = SCHEMA.field(column).type
    return pa.nulls(count, type_) if value is None else pa.repeat(pa.scalar(value, type_), count)


def _array(column: str, values: Sequence[Any]) -> pa.Array:
    type_ = SCHEMA.field(column).type
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(type_)
    return pa.array(values, type_)


def _microseconds(ns: Sequence[int]) -> pa.Array:
    return pc.divide(pa.array(ns, pa.int64()), 1000)


def _complete(made: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    made["schema"] = _repeated("schema", VERSION, count)
    arrays = [made[name] if name in made else _repeated(name, None, count) for name in NAMES]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def parquet_options() -> dict[str, Any]:
    """How a file of this table is written: text by dictionary, long numbers by their differences;
    both shorter and faster than what is usual, and read by everybody."""
    texts = [one.name for one in COLUMNS if one.type in (Type.TEXT, Type.BYTES)]
    longs = [one.name for one in COLUMNS if one.type in (Type.LONG, Type.TIMESTAMP)]
    return {
        "compression": "zstd",
        "use_dictionary": texts,
        "column_encoding": dict.fromkeys(longs, "DELTA_BINARY_PACKED"),
    }
