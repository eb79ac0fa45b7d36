"""The Spark session of the pipeline, the same on a laptop and on a cluster.

`open_session` starts one with the settings that the event tables need: UTC, timestamps in
microseconds, ANSI arithmetic, Arrow between the engines, filters pushed into `format("swell")`.
In a session that somebody else has made, `prepare` sets what can still be set and registers the
source; the jobs run in either.

Spark writes its log to a file, which is named when something unforeseen fails and removed when
nothing did. A local session listens on the loopback interface alone.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swell.errors import ConfigurationError, SwellError
from swell.pipeline.java import find_java
from swell.pipeline.shims import python_shim

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"

SQL_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}
"""Can be set in a running session."""

_STATE_STORE = "spark.sql.streaming.stateStore"
ROCKSDB = {
    f"{_STATE_STORE}.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # What a batch changed is written with it, and all of the state now and then.
    f"{_STATE_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
}
"""For queries with `transformWithState`, and for them alone: stream-stream joins take four times
as long with it."""

_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Where in our code a column was made is of no use to who runs a job; noting it for each takes
    # a sixth of the time of an audit of a short log.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_CODE = {"spark.sql.codegen.cache.maxEntries": "2000"}
"""Code that was made for a query serves the next one like it. An audit has more of it than the 100
pieces that Spark keeps, and would compile all of them each time: half as long again on a short
log."""
_JAVA = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Spark looks for nulls itself, and what it reads lies in the batch: no second check of each value
that comes from Python."""
_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


@dataclass(frozen=True)
class SessionSettings:
    """Where Spark runs and with how much."""

    master: str = ""
    """Of Spark: local[2], spark://host:7077, …; empty: as `spark-submit` says, else all cores."""

    memory: str = "2g"
    """Of the driver, which in a local session does all the work."""

    name: str = "swell"

    shuffle_partitions: int = 0
    """0: twice the cores of a local session, else as Spark does. A stateful streaming query keeps
    the number that its checkpoint began with."""

    more: dict[str, str] = field(default_factory=dict)
    """Further settings of Spark, by their own names."""


class _Log:
    """Where the Java process of this Python process writes; there is at most one."""

    path: Path | None = None


def log_path() -> Path | None:
    """Where Spark's log is, if this process started Spark."""
    return _Log.path


def submitted() -> bool:
    """Whether `spark-submit` started this process; then Java and the master are its choice."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _local(settings: SessionSettings) -> bool:
    """Whether everything runs on this machine, in a Java process of ours."""
    return not submitted() and (settings.master or LOCAL).startswith("local")


def check_packages() -> None:
    """Raise `ConfigurationError` where Spark is not installed."""
    needed = ("pyspark", "pyarrow", "pandas", "matplotlib")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the pipeline needs {', '.join(missing)}: run `pip install 'swell[pipeline]'`"
        )


@contextmanager
def open_session(settings: SessionSettings | None = None) -> Iterator[SparkSession]:
    """A session with the source registered; it ends with the block. One that is already there, as
    in a notebook, is used as it is and stays."""
    present = _present()
    if present is not None:
        prepare(present)
        yield present
        return
    spark = start_session(settings or SessionSettings())
    try:
        yield spark
    except BaseException as error:
        spark.stop()
        if isinstance(error, SwellError | KeyboardInterrupt):
            _forget_log()
        raise
    spark.stop()
    _forget_log()


def _forget_log() -> None:
    """Nothing unforeseen has happened."""
    if _Log.path is not None:
        _Log.path.unlink(missing_ok=True)
        _Log.path = None


def _present() -> SparkSession | None:
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def start_session(settings: SessionSettings) -> SparkSession:
    """As `open_session`, for programs that end it themselves."""
    check_packages()
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", python_of(settings))
    conf = SparkConf(loadDefaults=False)
    for key, value in _settings_of(settings).items():
        conf.set(key, value)
    if not submitted():
        _start_java(conf)
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    prepare(spark)
    return spark


def python_of(settings: SessionSettings) -> str:
    """Which Python Spark starts. The shim is on this machine alone, and speeds up what works
    without it, as where there is no home, or no program may run there."""
    if _local(settings) and os.name == "posix":
        import pyspark

        with suppress(OSError, RuntimeError):
            shim = python_shim(Path(pyspark.__file__).parent)
            if os.access(shim, os.X_OK):
                return str(shim)
    return sys.executable


def prepare(spark: SparkSession) -> None:
    """Make `format("swell")` and the settings of the pipeline known in a session."""
    from swell.pipeline.source import SwellDataSource

    for key, value in SQL_SETTINGS.items():
        spark.conf.set(key, value)
    java: Any = getattr(spark, "_jsparkSession", None)
    if java is not None:  # Spark asks the active session, not this one, whether it has the name
        spark._get_j_spark_session_class(spark._jvm).setActiveSession(java)
    spark.dataSource.register(SwellDataSource)


def _settings_of(settings: SessionSettings) -> dict[str, str]:
    chosen = {"spark.app.name": settings.name, **SQL_SETTINGS, **_QUIET, **_CODE}
    chosen["spark.executor.extraJavaOptions"] = _JAVA
    if not submitted():
        master = settings.master or LOCAL
        chosen["spark.master"] = master
        chosen["spark.driver.memory"] = settings.memory
        chosen["spark.driver.extraJavaOptions"] = _JAVA
        if _local(settings):
            chosen |= _LOOPBACK
            # All of it at once: to grow and shrink the heap takes a quarter of a short job's time.
            chosen["spark.driver.extraJavaOptions"] += f" -Xms{settings.memory}"
    elif settings.master:
        raise ConfigurationError("spark-submit has chosen the master: leave --master out")
    partitions = settings.shuffle_partitions or _local_partitions(settings)
    if partitions:
        chosen["spark.sql.shuffle.partitions"] = str(partitions)
    return chosen | settings.more


def _local_partitions(settings: SessionSettings) -> int:
    """Twice the cores of a local master: Spark's own 200 cost more than the work of a laptop."""
    if not _local(settings):
        return 0
    cores = settings.master.removeprefix("local").strip("[]").split(",")[0]
    return 2 * (int(cores) if cores.isdigit() else os.cpu_count() or 1)


def _start_java(conf: Any) -> None:
    """Spark's Java process, with its words in a file instead of on the user's terminal."""
    from pyspark import SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return  # of an earlier session of this process
    os.environ["JAVA_HOME"] = str(find_java().home)
    descriptor, name = tempfile.mkstemp(prefix="swell-spark-", suffix=".log")
    try:
        launch: Any = launch_gateway
        gateway = launch(conf, {"stdout": descriptor, "stderr": descriptor})
    except PySparkRuntimeError:
        raise ConfigurationError(f"Java did not start Spark: its words are in {name}") from None
    finally:
        os.close(descriptor)
    _Log.path = Path(name)
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)
