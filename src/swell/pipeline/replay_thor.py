"""THOR at full size as Spark jobs: many independent runs, spread over the cluster (THR-10, THR-12).

A run is a function of its number alone: it draws its own chance from it. So runs can be spread in
any way, repeated after a failure, and give the same table. The functions come from the
experiments (`swell.lab`), which run the same ones in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

if TYPE_CHECKING:
    import pyarrow as pa

Run = Callable[[int], Sequence[Mapping[str, float]]]
"""From a run's number to its rows: figures by name, the same names in all of them."""


def spread(spark: SparkSession, runs: int, run: Run, columns: Sequence[str]) -> DataFrame:
    """run and the columns, all of them numbers: one task per run."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                made = run(number)
                arrays = [pa.array([number] * len(made), pa.int64())]
                arrays += [pa.array([float(row[name]) for row in made]) for name in columns]
                yield pa.RecordBatch.from_arrays(arrays, ["run", *columns])

    schema = ", ".join(["run long", *(f"`{name}` double" for name in columns)])
    return spark.range(0, runs, 1, runs).mapInArrow(rows, schema)


def means(table: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Over the runs: mean, standard deviation, lowest and highest of every other column."""
    values = [name for name in table.columns if name not in ("run", *keys)]
    figures = [
        function(name).alias(f"{label}_{name}")
        for name in values
        for label, function in (("mean", f.avg), ("std", f.stddev), ("min", f.min), ("max", f.max))
    ]
    return table.groupBy(*keys).agg(f.count("*").alias("runs"), *figures).orderBy(*keys)
