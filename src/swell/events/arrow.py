"""The table of events in Arrow's form, and batches of it made from events, column by column.

Texts of a batch stand in dictionaries, since few are different: neither who makes a batch nor who
writes it to a file then touches the text of each row.

The only module here that imports pyarrow: it is imported where rows are written or read, and
nowhere else. What all rows of a batch share, or what few lives or records repeat, is spread by
Arrow itself: a row costs Python only its own fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from swell.events.rows import FORMS, Form, Pile, Piles
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

_TEXTS = (pa.string(), pa.binary())

_OF_LIFE = {name: name for name in ("run", "node", "role", "start", "site", "zone")}

_RANGED = ("schema", "run", "at", "node", "application", "name", "sequence")
"""Columns of which a file tells the range: the version of the table, which is then known without
its rows, and those by which queries leave out what they do not want."""

CONSTANTS_MAX = 256
"""Constant columns that are kept; each is as long as a batch."""


def field(column: Column) -> pa.Field:
    return pa.field(column.name, _TYPES[column.type], nullable=not column.required)


SCHEMA: pa.Schema = pa.schema([field(column) for column in COLUMNS])
"""Of every file; date and kind are directories."""

BATCH_SCHEMA: pa.Schema = pa.schema(
    [
        one.with_type(pa.dictionary(pa.int32(), one.type)) if one.type in _TEXTS else one
        for one in SCHEMA
    ]
)
"""Of a batch on its way to a file, and of nothing that is read."""

pa.array([VERSION], pa.int16())  # what Arrow imports with its first array, it does now


def batches(piles: Piles) -> Iterator[tuple[Kind, pa.RecordBatch]]:
    """The rows of these events, one batch for each type of them."""
    for event, pile in piles.items():
        form = FORMS[event]
        yield form.kind, _batch(form, pile)


def _batch(form: Form, pile: Pile) -> pa.RecordBatch:
    events = pile.events
    whose, firsts, wall_ns, mono_ns = np.frombuffer(pile.numbers, np.int64).reshape(-1, 4).T
    made = {"at": pa.array(wall_ns // 1000), "mono_us": pa.array(mono_ns // 1000)}
    rows = pa.array(firsts)
    columns = {column: source for column, source in form.columns.items() if column != form.each}
    of: pa.Array | None = None
    if form.each:
        lists, which = _few(list(map(attrgetter(form.columns[form.each]), events)))
        texts = _array(form.each, list(chain.from_iterable(lists)))
        ends = np.fromiter(accumulate(map(len, lists), initial=0), np.int32, len(lists) + 1)
        listed = pa.ListArray.from_arrays(pa.array(ends), texts.indices).take(which)
        of = pc.list_parent_indices(listed)
        begins = listed.offsets.to_numpy()[:-1]
        rows = pc.add(pa.array(firsts - begins).take(of), _counted(len(of)))
        made = {column: one.take(of) for column, one in made.items()}
        made[form.each] = pa.DictionaryArray.from_arrays(listed.flatten(), texts.dictionary)
    made["row"] = rows
    lives = pa.array(whose).dictionary_encode()
    few = [pile.lives[number] for number in lives.dictionary.to_pylist()]
    made |= _spread(few, lives.indices, _OF_LIFE, of)
    made |= _spread(*_few(events), columns, of)
    return _complete(made, len(rows))


def _few(objects: Sequence[Any]) -> tuple[list[Any], pa.Array]:
    """The different ones among objects of which many are the same, and which of them each is."""
    ids = list(map(id, objects))
    by_id = dict(zip(ids, objects, strict=True))
    encoded = pa.array(ids, pa.int64()).dictionary_encode()
    return [by_id[one] for one in encoded.dictionary.to_pylist()], encoded.indices


def _spread(
    few: Sequence[object], which: pa.Array, columns: Mapping[str, str], of: pa.Array | None
) -> dict[str, pa.Array]:
    """Columns of fields of few objects, each of which is looked at once. `which`: of these, for
    each event. `of`: the event of each row; None: one row for each, in their order."""
    places = which if of is None else which.take(of)
    made = {}
    for column, source in columns.items():
        values = list(map(attrgetter(source), few))
        if values.count(values[0]) == len(values):
            made[column] = _repeated(column, values[0], len(places))
        else:
            made[column] = _array(column, values).take(places)
    return made


def _repeated(column: str, value: object, count: int) -> pa.Array:
    """A slice of one that is kept: most columns of a batch are of this kind."""
    return _long(column, value, 1 << (count - 1).bit_length()).slice(0, count)


@lru_cache(CONSTANTS_MAX)
def _long(column: str, value: object, count: int) -> pa.Array:
    if value is None:
        return pa.nulls(count, BATCH_SCHEMA.field(column).type)
    return _array(column, [value]).take(pa.repeat(pa.scalar(0, pa.int32()), count))


def _counted(count: int) -> pa.Array:
    """0, 1, 2 …"""
    return _long_counted(1 << (count - 1).bit_length()).slice(0, count)


@lru_cache
def _long_counted(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


def _array(column: str, values: Sequence[Any]) -> pa.Array:
    type_ = SCHEMA.field(column).type
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(type_)
    made = pa.array(values, type_)
    return made.dictionary_encode() if type_ in _TEXTS else made


def _complete(made: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    made["at"] = made["at"].cast(_TYPES[Type.TIMESTAMP])
    made["schema"] = _repeated("schema", VERSION, count)
    arrays = [made[name] if name in made else _repeated(name, None, count) for name in NAMES]
    return pa.RecordBatch.from_arrays(arrays, schema=BATCH_SCHEMA)


def parquet_options() -> dict[str, Any]:
    """How a file of this table is written: text by dictionary, long numbers by their differences;
    both shorter and faster than what is usual, and read by everybody. Ranges of values only
    where somebody asks for them."""
    texts = [one.name for one in COLUMNS if one.type in (Type.TEXT, Type.BYTES)]
    longs = [one.name for one in COLUMNS if one.type in (Type.LONG, Type.TIMESTAMP)]
    return {
        "compression": "zstd",
        "write_statistics": list(_RANGED),
        "use_dictionary": texts,
        "column_encoding": dict.fromkeys(longs, "DELTA_BINARY_PACKED"),
    }
