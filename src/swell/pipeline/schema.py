"""The table of events as Spark sees it, derived from `swell.events.schema`."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from swell.events.schema import COLUMNS, Type

TYPES: dict[Type, DataType] = {
    Type.TEXT: StringType(),
    Type.BYTES: BinaryType(),
    Type.SHORT: ShortType(),
    Type.INT: IntegerType(),
    Type.LONG: LongType(),
    Type.DOUBLE: DoubleType(),
    Type.DOUBLES: ArrayType(DoubleType()),
    Type.TIMESTAMP: TimestampType(),
}

EVENTS = StructType(
    [
        *(StructField(c.name, TYPES[c.type], nullable=not c.required) for c in COLUMNS),
        StructField("date", DateType()),
        StructField("kind", StringType(), nullable=False),
    ]
)
"""A row of a log: the columns of its files, then those that the path gives."""
