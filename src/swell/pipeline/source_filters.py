"""Which rows `format("swell")` reads: filters from its options, or pushed into it by Spark.

Options: `kind`, `application`, `name` (one or several, separated by commas), `since` and `until`
(ISO times, UTC if they do not say; the first included, the second not).

A condition on `date` or `kind` is decided by a file's path: such files are never opened. One on
another column becomes an Arrow expression, which skips the row groups whose statistics rule it
out, and filters the rows of the others. What is not taken here Spark evaluates itself, so a filter
is taken only if Arrow means by it exactly what SQL does: nothing on floating-point columns (NaN),
nothing that is true for null unless it says so.
"""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from swell.events.schema import COLUMNS, PARTITIONS, Type
from swell.pipeline.source_files import LogError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

_COMPARISONS: dict[type[Filter], Callable[[Any, Any], Any]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
_INEXACT = frozenset(
    column.name for column in COLUMNS if column.type in (Type.DOUBLE, Type.DOUBLES)
)


class Pushed(NamedTuple):
    """The filters that are taken here; all of them hold for a row that is read."""

    paths: tuple[Filter, ...] = ()
    rows: tuple[Filter, ...] = ()

    def __and__(self, other: Pushed) -> Pushed:
        return Pushed(self.paths + other.paths, self.rows + other.rows)

    def takes(self, date: str, kind: str) -> bool:
        """Whether files of this date and kind can have rows that are wanted."""
        values = {"date": _day(date), "kind": kind}
        return all(_holds(filter, values) for filter in self.paths)

    def expression(self, schema: pa.Schema) -> pc.Expression | None:
        """The filters on rows; None: there are none."""
        parts = [_expression(filter, schema) for filter in self.rows]
        return reduce(operator.and_, parts) if parts else None


def of_options(options: Mapping[str, str]) -> Pushed:
    """The filters that the options of a source ask for."""
    paths: list[Filter] = []
    rows: list[Filter] = []
    for option in ("kind", "application", "name"):
        wanted = tuple(word.strip() for word in options.get(option, "").split(",") if word.strip())
        if wanted:
            (paths if option in PARTITIONS else rows).append(In((option,), wanted))
    since, until = (_time(options, option) for option in ("since", "until"))
    if since is not None:
        paths.append(GreaterThanOrEqual(("date",), since.date()))
        rows.append(GreaterThanOrEqual(("at",), since))
    if until is not None:
        paths.append(LessThanOrEqual(("date",), until.date()))
        rows.append(LessThan(("at",), until))
    return Pushed(tuple(paths), tuple(rows))


def _time(options: Mapping[str, str], name: str) -> dt.datetime | None:
    text = options.get(name, "")
    if not text:
        return None
    try:
        stated = dt.datetime.fromisoformat(text)
    except ValueError:
        raise LogError(f"option {name}={text} is no time: write 2026-11-11T00:00:00") from None
    return stated.replace(tzinfo=dt.UTC) if stated.tzinfo is None else stated.astimezone(dt.UTC)


def split(filters: Iterable[Filter]) -> tuple[Pushed, list[Filter]]:
    """What is taken here, and what is left to Spark."""
    paths: list[Filter] = []
    rows: list[Filter] = []
    left: list[Filter] = []
    for filter in filters:
        column = _column(filter)
        if column is None or not _exact(filter):
            left.append(filter)
        elif column in PARTITIONS:
            paths.append(filter)
        else:
            rows.append(filter)
    return Pushed(tuple(paths), tuple(rows)), left


def _inner(filter: Filter) -> Filter:
    return filter.child if isinstance(filter, Not) else filter


def _column(filter: Filter) -> str | None:
    """The one column that a filter is about; None for a field inside a column."""
    path: tuple[str, ...] = getattr(_inner(filter), "attribute", ())
    return path[0] if len(path) == 1 else None


def _exact(filter: Filter) -> bool:
    """Whether Arrow and the path mean by it what SQL does."""
    inner = _inner(filter)
    if _column(filter) in _INEXACT and not isinstance(inner, IsNull | IsNotNull):
        return False
    if isinstance(inner, EqualNullSafe):
        return not isinstance(filter, Not)
    if isinstance(inner, In):
        return not (isinstance(filter, Not) and None in inner.value)
    if isinstance(inner, IsNull | IsNotNull):
        return True
    return (type(inner) in _COMPARISONS or isinstance(inner, StringStartsWith)) and (
        inner.value is not None  # type: ignore[attr-defined]
    )


def _day(text: str) -> dt.date | None:
    """The date that a path names; None, as Spark reads it, if it names none."""
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        return None


def _holds(filter: Filter, values: Mapping[str, Any]) -> bool:
    """A filter on the columns that a path gives; null is true for no comparison."""
    inner = _inner(filter)
    value = values[inner.attribute[0]]  # type: ignore[attr-defined]
    if isinstance(inner, IsNull | IsNotNull):
        truth = (value is None) == isinstance(inner, IsNull)
    elif isinstance(inner, EqualNullSafe):
        truth = value == inner.value
    elif value is None:
        return False
    elif isinstance(inner, In):
        truth = value in [item for item in inner.value if item is not None]
    elif isinstance(inner, StringStartsWith):
        truth = str(value).startswith(inner.value)
    else:
        truth = bool(_COMPARISONS[type(inner)](value, inner.value))  # type: ignore[attr-defined]
    return truth is not isinstance(filter, Not)


def _expression(filter: Filter, schema: pa.Schema) -> pc.Expression:
    import pyarrow.compute as pc

    inner = _inner(filter)
    name = inner.attribute[0]  # type: ignore[attr-defined]
    field, type_ = pc.field(name), schema.field(name).type
    if isinstance(inner, IsNull):
        made = field.is_null()
    elif isinstance(inner, IsNotNull):
        made = field.is_valid()
    elif isinstance(inner, EqualNullSafe) and inner.value is None:
        made = field.is_null()
    elif isinstance(inner, EqualNullSafe):
        made = field == _scalar(inner.value, type_)
    elif isinstance(inner, In):
        made = field.is_valid() & field.isin(
            _array([item for item in inner.value if item is not None], type_)
        )
        if isinstance(filter, Not):  # null is in no list, and not outside of it either
            return field.is_valid() & ~made
    elif isinstance(inner, StringStartsWith):
        made = pc.starts_with(field, inner.value)
    else:
        compare = _COMPARISONS[type(inner)]
        made = compare(field, _scalar(inner.value, type_))  # type: ignore[attr-defined]
    return ~made if isinstance(filter, Not) else made


def _plain(value: Any) -> Any:
    """Timestamps without a zone are in the session's, which is UTC."""
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        return value.replace(tzinfo=dt.UTC)
    return value


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    import pyarrow as pa

    return pa.scalar(_plain(value), type_)


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    return pa.array([_plain(value) for value in values], type_)
