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

from swell.events.rows import FORMS, ROW_BITS, Form, Pile, Piles
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

POOL = pa.system_memory_pool()
"""Of all that is made here. Arrow's usual one takes pages of 2 MiB and gives them back when idle,
as writing events mostly is: on a virtual machine each costs the kernel up to 30 ms to hand out,
more than the rows that go there. The application's own use of Arrow is left as it is."""


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
    numbers, wall_ns, mono_ns = np.frombuffer(pile.numbers, np.int64).reshape(-1, 3).T
    whose, firsts = numbers >> ROW_BITS, numbers & ((1 << ROW_BITS) - 1)
    made = {"at": pa.array(wall_ns // 1000), "mono_us": pa.array(mono_ns // 1000)}
    rows = pa.array(firsts, memory_pool=POOL)
    columns = {column: source for column, source in form.columns.items() if column != form.each}
    of: pa.Array | None = None
    if form.each:
        lists, which = _few(list(map(attrgetter(form.columns[form.each]), events)))
        texts = _array(form.each, list(chain.from_iterable(lists)))
        ends = np.fromiter(accumulate(map(len, lists), initial=0), np.int32, len(lists) + 1)
        listed = _take(pa.ListArray.from_arrays(pa.array(ends), texts.indices), which)
        of = pc.list_parent_indices(listed, memory_pool=POOL)
        begins = listed.offsets.to_numpy()[:-1]
        made = _taken({**made, "row": pa.array(firsts - begins)}, of)
        rows = pc.add(made["row"], _counted(len(of)), memory_pool=POOL)
        made[form.each] = pa.DictionaryArray.from_arrays(listed.flatten(), texts.dictionary)
    made["row"] = rows
    lives = _encoded(pa.array(whose, memory_pool=POOL))
    few = [pile.lives[number] for number in lives.dictionary.to_pylist()]
    made |= _spread(few, lives.indices, _OF_LIFE, of)
    made |= _spread(*_few(events), columns, of)
    return _complete(made, len(rows))


def _few(objects: Sequence[Any]) -> tuple[list[Any], pa.Array]:
    """The different ones among objects of which many are the same, and which of them each is."""
    count = len(objects)
    encoded = _encoded(pa.array(np.fromiter(map(id, objects), np.int64, count)))
    one_of = np.empty(len(encoded.dictionary), np.int64)
    one_of[encoded.indices.to_numpy()] = np.arange(count)
    return [objects[place] for place in one_of.tolist()], encoded.indices


def _spread(
    few: Sequence[object], which: pa.Array, columns: Mapping[str, str], of: pa.Array | None
) -> dict[str, pa.Array]:
    """Columns of fields of few objects, each of which is looked at once. `which`: of these, for
    each event. `of`: the event of each row; None: one row for each, in their order."""
    places = which if of is None else _take(which, of)
    made, different = {}, {}
    for column, source in columns.items():
        values = list(map(attrgetter(source), few))
        if values.count(values[0]) == len(values):
            made[column] = _repeated(column, values[0], len(places))
        else:
            different[column] = _array(column, values)
    return made | _taken(different, places)


def _repeated(column: str, value: object, count: int) -> pa.Array:
    """A slice of one that is kept: most columns of a batch are of this kind."""
    return _long(column, value, _round(count)).slice(0, count)


@lru_cache(CONSTANTS_MAX)
def _long(column: str, value: object, count: int) -> pa.Array:
    if value is None:
        return _nulls(BATCH_SCHEMA.field(column).type, count)
    made = _array(column, [value])
    if isinstance(made, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(_zeros(count), made.dictionary)
    return _take(made, _zeros(count))


@lru_cache
def _nulls(type_: pa.DataType, count: int) -> pa.Array:
    """For all columns of a type."""
    return pa.nulls(count, type_, POOL)


@lru_cache
def _zeros(count: int) -> pa.Array:
    return pa.array(np.zeros(count, np.int32))


def _counted(count: int) -> pa.Array:
    """0, 1, 2 …"""
    return _long_counted(_round(count)).slice(0, count)


def _round(count: int) -> int:
    """How long what is kept is made for it: of few different lengths."""
    return 1 << (count - 1).bit_length()


@lru_cache
def _long_counted(count: int) -> pa.Array:
    return pa.array(np.arange(count))


def _array(column: str, values: Sequence[Any]) -> pa.Array:
    type_ = SCHEMA.field(column).type
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64(), memory_pool=POOL).cast(type_)
    made = pa.array(values, type_, memory_pool=POOL)
    return _encoded(made) if type_ in _TEXTS else made


def _taken(columns: dict[str, pa.Array], places: pa.Array) -> dict[str, pa.Array]:
    """The same rows of several columns, by one call: each call hands the interpreter's lock to the
    loop, which has its turn before the next."""
    if not columns:
        return {}
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    return dict(zip(columns, _take(batch, places).columns, strict=True))


def _take(values: Any, places: pa.Array) -> Any:
    return pc.take(values, places, boundscheck=False, memory_pool=POOL)


def _encoded(values: pa.Array) -> pa.DictionaryArray:
    return pc.dictionary_encode(values, memory_pool=POOL)


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
        "memory_pool": POOL,
        "compression": "zstd",
        "write_statistics": list(_RANGED),
        "use_dictionary": texts,
        "column_encoding": dict.fromkeys(longs, "DELTA_BINARY_PACKED"),
    }
