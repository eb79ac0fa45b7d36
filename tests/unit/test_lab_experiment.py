"""The frame of all experiments: one form of JSON, exit codes, finding without importing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import swell.lab
from swell.cli.lab import lab as lab_command
from swell.lab.experiment import Bar, Lab, Report, experiments

TOY = """
from swell.lab.experiment import Bar, Report
SUMMARY = "A toy [with brackets]"
def run(lab):
    with lab.progress("outer", 2) as outer, lab.progress("inner", 1) as inner:
        outer(); inner(); outer()
    {body}
    return Report(
        settings={{"quick": lab.quick}},
        rows=[{{"size": 1, "ours_s": 0.5, "paper_s": 0.4}}, {{"size": 2, "ours_s": 0.25}}],
        headline={{"best": 0.25}},
        bars=[Bar.at_most("time", {bar}, 0.25)],
        notes=["a note"],
    )
"""


@pytest.fixture
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Experiments in a folder of their own, beside the real ones."""
    for name, body, bar in (
        ("toy_good", "lab.plot('toy').write_bytes(b'png')", 1),
        ("toy_bad", "pass", 0.1),
        ("toy_stopped", "raise KeyboardInterrupt", 1),
    ):
        (tmp_path / f"{name}.py").write_text(TOY.format(body=body, bar=bar))
    (tmp_path / "no_experiment.py").write_text("OTHER = 1\n")
    monkeypatch.setattr(swell.lab, "__path__", [*swell.lab.__path__, str(tmp_path)])
    yield tmp_path
    for module in [m for m in sys.modules if m.startswith("swell.lab.toy_")]:
        del sys.modules[module]


def swell_lab(*arguments: str) -> tuple[int, str, str]:
    app = typer.Typer()
    app.command("lab")(lab_command)
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, result.stderr


def test_the_json_has_exactly_the_agreed_form() -> None:
    report = Report(
        settings={"sizes": (1, 2)},
        rows=[{"n": np.int64(3), "share": np.float64(0.5), "open": float("nan"), "ok": np.True_}],
        headline={"best": np.float64(0.5)},
        bars=[Bar.at_least("share", 0.4, np.float64(0.5))],
        columns=["n"],
        notes=["not in the file"],
        name="toy",
        machine={"cpus": 2},
    )
    assert json.loads(report.to_json()) == {
        "name": "toy",
        "settings": {"sizes": [1, 2]},
        "machine": {"cpus": 2},
        "rows": [{"n": 3, "share": 0.5, "open": None, "ok": True}],
        "headline": {"best": 0.5},
        "bars": [{"what": "share", "bar": 0.4, "measured": 0.5, "holds": True}],
    }


@pytest.mark.parametrize(
    ("bar", "holds"),
    [
        (Bar.at_least("x", 1, 1), True),
        (Bar.at_least("x", 1, 0.9), False),
        (Bar.at_most("x", 1, 1), True),
        (Bar.at_most("x", 1, 1.1), False),
        (Bar.at_least("x", 1, float("nan")), False),
        (Bar.at_most("x", 1, float("nan")), False),
    ],
)
def test_bars_include_their_limit_and_refuse_what_is_no_number(bar: Bar, holds: bool) -> None:
    assert bar.holds is holds


def test_without_a_name_all_are_listed_with_one_line(toys: Path) -> None:
    code, out, _ = swell_lab()
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert {"thor-topology", "thor-resilience", "thor-hashing", "toy-good"} <= set(lines)
    assert "A toy [with brackets]" in lines["toy-good"]
    assert "no-experiment" not in lines
    assert len(lines) == len(experiments())


def test_a_run_prints_rows_headline_and_bars_and_writes_both_files(toys: Path) -> None:
    file = toys / "out.json"
    code, out, _ = swell_lab(
        "toy-good", "--quick", "--json", str(file), "--plots", str(toys / "new" / "plots")
    )
    assert code == 0
    for text in ("ours", "paper", "0.25", "a note", "best: 0.25", "holds  time: 0.25 (bar 1)"):
        assert text in out
    written = json.loads(file.read_text())
    assert written["name"] == "toy-good"
    assert written["settings"] == {"quick": True}
    assert {"cpus", "model", "memory_gib", "python"} <= set(written["machine"])
    assert (toys / "new" / "plots" / "toy.png").read_bytes() == b"png"


def test_json_on_stdout_stands_alone(toys: Path) -> None:
    code, out, _ = swell_lab("toy-good", "--json", "-", "--plots", str(toys))
    assert code == 0
    assert json.loads(out)["headline"] == {"best": 0.25}


def test_a_bar_that_does_not_hold_exits_1_and_still_writes(toys: Path) -> None:
    code, out, _ = swell_lab("toy-bad", "--json", str(toys / "bad.json"))
    assert code == 1
    assert "FAILS  time" in out
    assert json.loads((toys / "bad.json").read_text())["bars"][0]["holds"] is False


def test_ctrl_c_exits_130_without_a_traceback(toys: Path) -> None:
    code, out, err = swell_lab("toy-stopped")
    assert (code, out) == (130, "")
    assert err == "swell lab: interrupted\n"


def test_an_unknown_name_gets_one_line_with_the_known_ones() -> None:
    code, out, err = swell_lab("thor-topolgy")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "'thor-topolgy'" in err
    assert "thor-topology" in err


def test_a_place_that_cannot_be_written_is_told_before_the_run(toys: Path) -> None:
    (toys / "file").write_text("")
    for arguments in (["--json", str(toys / "no" / "x.json")], ["--plots", str(toys / "file")]):
        code, _, err = swell_lab("toy-stopped", *arguments)
        assert code == 2, "the experiment itself would have ended with 130"
        assert err.count("\n") == 1


def test_listing_imports_nothing_heavy() -> None:
    program = (
        "import sys; from swell.cli.lab import lab; lab();"
        "print([m for m in ('numpy', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_progress_is_silent_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with Lab(quiet=True).progress("x", 3) as advance:
        advance(3)
    assert capsys.readouterr() == ("", "")
