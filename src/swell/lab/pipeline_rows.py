"""A large event log, made by arrays: every container of an application applies every version.

Planted, in known shares: containers that fall silent, deliveries that never come, that come late
(after a later version, if that is faster), twice, or altered. No rows are lost and no clocks are
off: what every engine has to find follows from the rows alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from swell.config.versions import NO_VERSION
from swell.events.arrow import SCHEMA
from swell.pipeline.audit_settings import US_PER_S

BEGIN_US = 1_794_355_200_000_000
DATE = "2026-11-11"
BOOT_US = BEGIN_US - 86_400 * US_PER_S
FILE_ROWS = 1_000_000
ID_BYTES = 20

Numbers = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class LogShape:
    """How large a log is, and what is wrong with it."""

    applications: int = 20
    names: int = 10
    versions: int = 100
    containers: int = 500
    """Of each application."""

    store_every_us: int = 17_500
    """Between two store rows; a name's versions follow each other after all other names': after
    3.5 s here, so that what comes late is overtaken."""

    silent: float = 0.01
    """Share of (container, name) that apply nothing more from some version on."""

    skipped: float = 0.001
    late: float = 0.001
    twice: float = 0.001
    altered: float = 0.001
    seed: int = 1

    @property
    def deliveries(self) -> int:
        return self.applications * self.names * self.versions * self.containers


def write_log(root: Path, shape: LogShape) -> None:
    """Write the files of a log, and of nothing else, below a directory."""
    stores = _stores(shape)
    write_rows(root, "store", _store_rows(stores))
    containers = shape.applications * shape.containers
    number = np.arange(containers)
    application = number // shape.containers
    began_us = np.full(containers, BEGIN_US - US_PER_S)
    subscribes = common("primary", began_us, len(stores["at_us"]) + 1 + number, containers)
    subscribes |= {
        "application": texts("app", application),
        "name": pa.array([""] * containers),
        "peer": texts("c", number),
    }
    write_rows(root, "subscribe", subscribes)
    first = np.ones(containers, np.int64)
    starts = common(texts("c", number), began_us - US_PER_S, first, containers, "container")
    write_rows(root, "start", starts | {"site": texts("site", number % 4)}, "containers-1-1")
    end_us = np.array([stores["at_us"].max() + 600 * US_PER_S])
    stop = common("primary", end_us, np.array([len(stores["at_us"]) + containers + 1]), 1)
    write_rows(root, "stop", stop)
    for one in range(shape.applications):
        own = {name: values[stores["application"] == one] for name, values in stores.items()}
        rng = np.random.default_rng((shape.seed, one))
        write_pieces(root, "apply", _apply_rows(own, shape, rng), f"containers{one}")


def _stores(shape: LogShape) -> dict[str, Numbers]:
    count = shape.applications * shape.names * shape.versions
    index = np.arange(count)
    configurations = shape.applications * shape.names
    configuration = index % configurations
    version = index // configurations + 1
    application = configuration % shape.applications
    name = configuration // shape.applications
    at_us = BEGIN_US + index * shape.store_every_us
    step = (version - 1) * shape.names + name + 1
    return {
        "application": application,
        "name": name,
        "version": version,
        "step": step,
        "at_us": at_us,
    }


def _store_rows(stores: dict[str, Numbers]) -> dict[str, Any]:
    count = len(stores["at_us"])
    rows = common("primary", stores["at_us"], np.arange(1, count + 1), count)
    ids = _ids(stores["application"], stores["name"], stores["version"])
    before = _ids(stores["application"], stores["name"], stores["version"] - 1)
    before[stores["version"] == 1] = np.frombuffer(NO_VERSION, np.uint8)
    return rows | {
        "application": texts("app", stores["application"]),
        "name": texts("name", stores["name"]),
        "first": pa.array(stores["version"]),
        "sequence": pa.array(stores["version"]),
        "step": pa.array(stores["step"]),
        "epoch": pa.array(np.ones(count, np.int64)),
        "digest": _bytes(ids),
        "base": _bytes(before),
    }


def _apply_rows(
    stores: dict[str, Numbers], shape: LogShape, rng: np.random.Generator
) -> dict[str, Any]:
    """Of the containers of one application."""
    count = len(stores["at_us"])
    store = np.repeat(np.arange(count), shape.containers)
    own = np.tile(np.arange(shape.containers), count)
    container = stores["application"][store] * shape.containers + own
    took_us = (rng.gamma(2.0, 20_000, len(store)) + 500).astype(np.int64)
    pairs = shape.containers * shape.names
    last = np.where(
        rng.random(pairs) < shape.silent, rng.integers(0, shape.versions, pairs), shape.versions
    )
    pair = own * shape.names + stores["name"][store]
    kept = (rng.random(len(store)) >= shape.skipped) & (stores["version"][store] <= last[pair])
    store, container, took_us = store[kept], container[kept], took_us[kept]
    late = rng.random(len(store)) < shape.late
    took_us[late] = 4 * US_PER_S
    again = np.flatnonzero(rng.random(len(store)) < shape.twice)
    at_us = stores["at_us"][store] + took_us
    store, container = np.append(store, store[again]), np.append(container, container[again])
    sent_us = stores["at_us"][store] + 200
    at_us = np.append(at_us, at_us[again] + 50)
    order = np.lexsort((at_us, container))
    store, container, at_us, sent_us = store[order], container[order], at_us[order], sent_us[order]
    begins = np.flatnonzero(np.append(True, container[1:] != container[:-1]))
    lengths = np.diff(np.append(begins, len(container)))
    row = np.arange(len(container)) - np.repeat(begins, lengths) + 2  # behind the start
    ids = _ids(stores["application"][store], stores["name"][store], stores["version"][store])
    ids[rng.random(len(store)) < shape.altered, -1] = 255
    nodes = texts("c", container)
    rows = common(nodes, at_us, row, len(store), "container")
    return rows | {
        "site": texts("site", container % 4),
        "application": texts("app", stores["application"][store]),
        "name": texts("name", stores["name"][store]),
        "first": pa.array(stores["version"][store]),
        "sequence": pa.array(stores["version"][store]),
        "step": pa.array(stores["step"][store]),
        "epoch": pa.array(np.ones(len(store), np.int64)),
        "digest": _bytes(ids),
        "peer": pa.repeat("primary", len(store)),
        "sent_at": stamps(sent_us),
        "sent_mono_us": pa.array(sent_us - BOOT_US),
    }


def common(
    node: str | pa.Array, at_us: Numbers, row: Numbers, count: int, role: str = "node"
) -> dict[str, Any]:
    """The columns that every row has."""
    return {
        "schema": pa.repeat(pa.scalar(1, pa.int16()), count),
        "run": pa.repeat("large", count),
        "at": stamps(at_us),
        "mono_us": pa.array(at_us - BOOT_US),
        "node": pa.repeat(node, count) if isinstance(node, str) else node,
        "role": pa.repeat(role, count),
        "start": pa.array(np.ones(count, np.int64)),
        "row": pa.array(row),
    }


def _ids(application: Numbers, name: Numbers, version: Numbers) -> Numbers:
    """Twenty bytes that differ where the versions do."""
    ids: Numbers = np.zeros((len(version), ID_BYTES), np.uint8)
    for place, value in ((0, application), (4, name), (8, version)):
        ids[:, place : place + 4] = value.astype(">u4").view(np.uint8).reshape(-1, 4)
    return ids


def _bytes(ids: Numbers) -> pa.Array:
    fixed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(ID_BYTES), len(ids), [None, pa.py_buffer(np.ascontiguousarray(ids))]
    )
    return fixed.cast(pa.binary())


def texts(prefix: str, numbers: Numbers) -> pa.Array:
    """Names by numbers that are close to each other."""
    least, most = int(numbers.min()), int(numbers.max())
    names = pa.array([f"{prefix}{number}" for number in range(least, most + 1)])
    return names.take(pa.array(numbers - least))


def stamps(us: Numbers) -> pa.Array:
    return pa.array(us).cast(pa.timestamp("us", tz="UTC"))


def write_pieces(root: Path, kind: str, columns: dict[str, Any], process: str) -> None:
    """Files of at most `FILE_ROWS` rows, as of one process."""
    for part, begin in enumerate(range(0, len(columns["row"]), FILE_ROWS), 1):
        piece = {name: array.slice(begin, FILE_ROWS) for name, array in columns.items()}
        write_rows(root, kind, piece, f"{process}-1-{part}")


def write_rows(root: Path, kind: str, columns: dict[str, Any], name: str = "primary-1-1") -> None:
    directory = root / f"date={DATE}" / f"kind={kind}"
    directory.mkdir(parents=True, exist_ok=True)
    pq.write_table(table_of(columns), directory / f"{name}.parquet", compression="zstd")


def table_of(columns: dict[str, Any]) -> pa.Table:
    """With all columns of the schema: those that are not given have no values."""
    count = len(columns["row"])
    arrays = [
        columns[field.name].cast(field.type)
        if field.name in columns
        else pa.nulls(count, field.type)
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
