"""`swell pipeline`: what people see, what programs get, and one sentence for everything wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from swell.cli.pipeline import app
from swell.errors import ConfigurationError
from swell.pipeline import publishing
from swell.pipeline.outcome import Outcome, write
from tests.pipeline.toy_logs import row, write_file


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def topic_log(log: Path) -> Path:
    """Three nodes on a line; topics t and v live on the wrong one."""
    places = {"n1": 0.0, "n2": 50.0, "n3": 100.0, "p": 95.0, "c": 98.0}
    write_file(
        log,
        "coordinate",
        "n1-1-1",
        [
            row(i, who, coordinate=[x, 0.0, 0.5], role="node" if who[0] == "n" else "client")
            for i, (who, x) in enumerate(places.items(), start=1)
        ],
    )
    flows = [("u", "peer", "c")]
    flows += [(topic, *client) for topic in "tv" for client in (("source", "p"), ("peer", "c"))]
    write_file(
        log,
        "traffic",
        "n1-1-2",
        [
            row(i, "n1", name=name, rate=2.0, reason="msgs", **{side: who})
            for i, (name, side, who) in enumerate(flows, start=10)
        ],
    )
    return log


def test_pip5_plan_from_a_log_of_events(spark: SparkSession, tmp_path: Path) -> None:
    """Of two topics that are far from their clients, one allows it."""
    log, out = topic_log(tmp_path / "log"), tmp_path / "out"
    limits = tmp_path / "limits.csv"
    limits.write_text("topic,limit_ms\nv,500\n")
    words = ["plan", "--events", str(log), "--limit-ms", "40", "--limits", str(limits)]
    done = run(*words, "--json", "--out", str(out))
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["tables"]["moves"] == [{"topic": "t", "source": "n1", "target": "n3"}]
    assert told["facts"] == {"topics": 3, "over their limit": 1, "moves": 1}
    assert pq.read_table(out / "moves").to_pylist() == told["tables"]["moves"]
    assert json.loads((out / "plan.json").read_text()) == told


def test_pip5_monitor_for_people_and_as_a_stream_has_one_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    log, out = topic_log(tmp_path / "log"), tmp_path / "out"
    done = run("monitor", "--events", str(log), "--out", str(out))
    assert done.exit_code == 0, done.output
    assert "busiest topics" in done.stdout
    assert "nodes with a coordinate: 3" in done.stdout
    table = {r["topic"]: r for r in pq.read_table(out / "topics").to_pylist()}
    assert set(table) == set("tuv")
    done = run("monitor", "--events", str(log), "--stream", "--once", "--json")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    told = {r["topic"]: r for line in lines if line.startswith('{"') for r in [json.loads(line)]}
    assert told == table


def test_pip6_workload_recommends_and_its_document_is_repeatable(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_file(tmp_path, "store", "n1-1-1", [row(1, application="a", name="x", sequence=1, step=1)])
    done = run("workload", "--events", str(tmp_path), "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert {r["setting"] for r in told["tables"]["recommended"]} >= {"config.relay_fanout"}
    outcome = Outcome("workload", told["facts"], told["tables"])
    document = json.loads(publishing.document(outcome))
    assert document["settings"]["config.relay_fanout"] >= 2
    assert document["load"]["configurations"] == 1


def test_rip24_replay_of_a_part_of_the_day(spark: SparkSession) -> None:
    done = run("replay", "--fraction", "0.0001", "--servers", "5", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["facts"]["deliveries of the whole day"] == 1_801_000_000
    assert len(told["tables"]["ways"]) == 4
    assert any("contradict" in note for note in told["notes"])


@pytest.mark.parametrize("job", ["audit", "latency", "monitor", "plan", "workload"])
@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: path / "nowhere", "there is no event log at"),
        (lambda path: path, "there are no events in"),
    ],
)
def test_bad_log_is_one_sentence(
    spark: SparkSession, tmp_path: Path, job: str, make: Any, sentence: str
) -> None:
    done = run(job, "--events", str(make(tmp_path)))
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.output


def test_bad_arguments(spark: SparkSession, tmp_path: Path) -> None:
    log = topic_log(tmp_path / "log")
    (tmp_path / "file").write_text("")
    for words, sentence in (
        (["plan", "--events", str(log), "--limits", "/nowhere.csv"], "there is no file"),
        (["plan", "--events", str(log), "--out", str(tmp_path / "file")], "name a directory"),
        (["plan", "--events", str(log), "--out", str(tmp_path / "file" / "x")], "Not a directory"),
        (["replay", "--fraction", "2"], "a fraction is above 0"),
        (["replay", "--reading", "third"], "total or mean"),
        (["thor-resilience", "--connections", "2"], "--connections is from 3"),
        (["latency", "--events", str(log), "--by", "colour"], "--by of application"),
    ):
        done = run(*words)
        assert done.exit_code == 2, words
        assert sentence in done.stderr, words


def test_bad_arguments_what_is_not_ours_is_not_replaced(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "moves").mkdir()
    (tmp_path / "moves" / "mine").write_text("")
    with pytest.raises(ConfigurationError, match="no table of an earlier run"):
        write(Outcome("plan", frames={"moves": spark.range(1)}), tmp_path)
    assert (tmp_path / "moves" / "mine").exists()


def test_a_log_without_coordinates_cannot_be_planned_from(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_file(tmp_path, "start", "n1-1-1", [row(1)])
    done = run("plan", "--events", str(tmp_path))
    assert done.exit_code == 2
    assert "no coordinates" in done.stderr


def test_the_examples_of_the_page_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = {"application": "shop", "name": "db.json", "sequence": 1, "step": 1, "epoch": 1}
    version = {"digest": b"d" * 20, "base": b"\0" * 20, "bytes": 3}
    write_file(tmp_path, "store", "n1-1-1", [row(1, **common, **version)])
    write_file(tmp_path, "apply", "c1-1-1", [row(2, "c1", role="container", **common, **version)])
    page = (Path(__file__).resolve().parents[2] / "docs" / "pipeline.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(example, {"spark": spark, "log": str(tmp_path)})
    assert "shop" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("loaded", "without"),
    [
        ("swell.cli.main, swell.cli.pipeline", ("pyspark", "pyarrow", "pandas")),
        ("swell.pipeline.jobs", ("matplotlib",)),
    ],
)
def test_nothing_is_loaded_that_is_not_needed(loaded: str, without: tuple[str, ...]) -> None:
    text = f"import sys, {loaded}; print([name for name in {without} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["pyspark", "matplotlib"])
def test_bad_surroundings_a_package_is_missing(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    done = run("audit", "--events", str(tmp_path))
    assert done.exit_code == 2
    assert f"the pipeline needs {package}" in done.stderr
