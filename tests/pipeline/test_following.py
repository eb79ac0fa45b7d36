"""Jobs that follow a log: the tables of the batch, and a clean end with Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

from swell.cli.pipeline import app
from swell.pipeline import following, latency
from swell.pipeline.audit_settings import AuditSettings
from swell.pipeline.following import Following, Known
from swell.pipeline.latency_stream import Pairs
from swell.pipeline.outcome import rows_of
from swell.pipeline.streaming import COUNTED
from tests.pipeline.generated_logs import BEGIN_US, GeneratedLog, S, digest_of, frame_of
from tests.pipeline.test_latency import applied
from tests.pipeline.toy_logs import BEGIN, row, write_file

BY = ("application", "site")
LATER = "later"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def write_log(path: Path, logs: list[GeneratedLog], files: int) -> list[dict[str, Any]]:
    """The apply rows by their true time, in so many files; then a row that ends all windows."""
    applies = sorted((one for log in logs for one in log.of("apply")), key=lambda one: one["t"])
    for part in range(files):
        rows = applies[len(applies) * part // files : len(applies) * (part + 1) // files]
        write_file(path, "apply", f"c-1-{part + 1}", rows)
    end_us = BEGIN_US + 9000 * S
    last = {**applies[-1], "run": LATER, "at": end_us, "sent_at": end_us}
    write_file(path, "apply", f"c-1-{files + 1}", [last])
    return applies


def by_key(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    figures = ("count", "p50_ms", "p90_ms", "p99_ms", "max_ms", "late")
    keyed = {
        tuple(one[key] for key in ("run", *BY, "window")): tuple(one[name] for name in figures)
        for one in rows
    }
    assert len(keyed) == len(rows), "a window is told once"
    return keyed


def test_pip4_windows_of_a_stream_are_those_of_the_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also of runs whose clocks are off by minutes: the fastest delivery is in the first window."""
    logs = [applied(1), applied(2, -400 * S), applied(3, 400 * S)]
    slow = logs[0].of("apply")[200]
    slow["at"], slow["mono_us"] = slow["at"] + 70 * S, slow["mono_us"] + 70 * S
    log = tmp_path / "log"
    applies = write_log(log, logs, files=4)
    batch = rows_of(latency.table(frame_of(spark, logs, tmp_path), 60.0, BY))
    told: list[dict[str, Any]] = []
    how = Following(str(log), once=True, rows_max=len(applies) // 3)
    outcome = following.latency(spark, how, 60.0, BY, 3.0, told.extend)
    assert by_key(told) == by_key(batch)
    assert len(told) > 30
    of_sound_clocks = [one["max_ms"] for one in told if one["run"] == "run-1"]
    assert max(of_sound_clocks) > 70_000, "it was slow, and no clock was off"
    assert outcome.facts["deliveries"] == len(applies)
    assert outcome.facts["later than 3 s"] == sum(one["late"] for one in batch) > 1
    assert outcome.notes == [], "nothing came too late"


def test_the_fastest_delivery_of_a_pair_is_known_for_a_day() -> None:
    pairs = Pairs()
    for pair, took_us, hour in (("a", -5, 0), ("b", -7, 1), ("b", -3, 2), ("c", 4, 2), ("d", 9, 2)):
        pairs.hear(("run", pair), took_us, BEGIN + timedelta(hours=hour))
    pairs.hear(("run", "e"), 1, BEGIN + timedelta(hours=25))
    assert pairs.off(bound_us=8) == [("run", "a", -5), ("run", "b", -7), ("run", "d", 9)]
    pairs.forget()
    assert pairs.off(bound_us=8) == [("run", "b", -7), ("run", "d", 9)]


def test_pip4_a_stream_of_latencies_as_a_command(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path, [applied(1)], files=1)
    words = ["latency", "--events", str(tmp_path), "--stream", "--once", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    lines, _, document = done.stdout.partition("\n{\n")
    told = [json.loads(line) for line in lines.splitlines()]
    facts = json.loads("{\n" + document)["facts"]
    assert facts["deliveries"] == sum(one["count"] for one in told) == 3 * 199
    refused = CliRunner().invoke(app, [*words, "--since", "stored"])
    assert refused.exit_code == 2
    assert "measures from sent" in refused.stderr


@pytest.mark.usefixtures("alone")
def test_pip3_ctrl_c_ends_a_stream_with_its_summary_and_exit_code(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt comes while the query waits for more, after it told of a violation."""
    version = {"application": "shop", "name": "x", "sequence": 1, "epoch": 1}
    version |= {"digest": digest_of(1)}
    write_file(tmp_path, "start", "c1-1-1", [row(1, "c1", role="container")])
    write_file(tmp_path, "subscribe", "n1-1-1", [row(1, application="shop", name="", peer="c1")])
    write_file(tmp_path, "store", "n1-1-1", [row(2, **version)])
    write_file(tmp_path, "stop", "n1-1-1", [row(900, peer="nobody")])
    provider = spark.conf.get(PROVIDER)
    tell = following.audit

    def interrupted(*arguments: Any) -> Any:
        *rest, hear = arguments

        def heard(rows: list[dict[str, Any]]) -> None:
            hear(rows)
            os.kill(os.getpid(), signal.SIGINT)

        return tell(*rest, heard)

    monkeypatch.setattr(following, "audit", interrupted)
    words = ["audit", "--events", str(tmp_path), "--stream", "--delay", "5", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1, done.output
    assert '"verdict": "missing"' in done.stdout
    assert '"violations": 1' in done.stdout
    assert '"deliveries judged": 1' in done.stdout
    assert "Traceback" not in done.output
    assert spark.streams.active == []
    assert spark.conf.get(PROVIDER) == provider, "settings of one query are not those of the next"


@pytest.mark.beside
def test_pip3_a_stream_says_that_it_has_judged_nothing_yet(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two minutes of a log in which everything is missing: none of it is due by the defaults."""
    version = {"application": "shop", "name": "x", "epoch": 1}
    stores = [row(1 + one, sequence=one, digest=digest_of(one), **version) for one in (1, 2)]
    write_file(tmp_path, "start", "c1-1-1", [row(1, "c1", role="container")])
    write_file(tmp_path, "subscribe", "n1-1-1", [row(1, application="shop", name="", peer="c1")])
    write_file(tmp_path, "store", "n1-1-1", stores)
    write_file(tmp_path, "stop", "n1-1-1", [row(120, peer="nobody")])
    how = Following(str(tmp_path), once=True)
    outcome = following.audit(spark, how, AuditSettings(horizon_s=60.0), lambda rows: None)
    assert outcome.facts == {"deliveries judged": 0, "violations": 0, "excused": 0}
    (note,) = outcome.notes
    assert "no delivery was judged; versions not judged yet: 2" in note
    assert "150 s after it (--delay and --horizon)" in note


def test_what_is_said_of_how_much_was_judged() -> None:
    how, settings = Following("log"), AuditSettings(horizon_s=60.0)
    judged = following.Judged()
    assert "no delivery was due" in judged.notes(how, settings)[0]
    counts = [("a", 0, 3, 4), ("a", 1, 2, 4), ("b", 0, 0, 1)]
    judged.count([dict(zip(("run", *COUNTED), one, strict=True)) for one in counts])
    assert judged.deliveries == 5
    assert judged.notes(how, settings)[0].startswith("versions not judged yet: 5.")
    judged.count([{"run": run, "bucket": 0, "judged": 0, "unjudged": 0} for run in "ab"])
    judged.count([{"run": "a", "bucket": 1, "judged": 0, "unjudged": 0}])
    assert judged.notes(how, settings) == []


@pytest.mark.beside
def test_pip5_flows_that_have_ended_are_not_kept(spark: SparkSession, tmp_path: Path) -> None:
    flow = {"name": "t", "rate": 1.0, "reason": "msgs"}
    gone = row(1, "c1", coordinate=[1.0, 2.0, 3.0])
    ended = [row(one, peer=f"c{one}", **flow) for one in (1, 2)]
    lasting = [row(one, peer=f"c{one}", **flow) for one in (30, 80)]
    known = Known(spark, window_s=60.0)
    for number, rows in enumerate((ended, lasting)):
        log = tmp_path / str(number)
        write_file(log, "coordinate", "c1-1-1", [gone])
        write_file(log, "traffic", "n1-1-1", rows)
        known.take(spark.read.format("swell").load(str(log)))
    kept = {(one["kind"], one["peer"]) for one in known.rows.collect()}
    assert kept == {("coordinate", None), ("traffic", "c30"), ("traffic", "c80")}


def test_a_query_that_fails_is_told(spark: SparkSession, tmp_path: Path) -> None:
    write_file(tmp_path, "start", "n1-1-1", [row(1)])

    def fail(batch: DataFrame, number: int) -> None:
        raise ValueError("told nobody")

    how = Following(str(tmp_path))
    with pytest.raises(Exception, match="told nobody"):
        following.wait(how.start(how.read(spark), fail))
