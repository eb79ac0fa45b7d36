"""`swell config` apart from any cluster: what its words mean, and what its results look like."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from swell.cli.config_arguments import (
    Place,
    Value,
    find_author,
    is_folder,
    one_value,
    parse_application,
    parse_assignments,
    parse_place,
    parse_prefix,
    parse_time_s,
    several_values,
)
from swell.cli.config_errors import check_value, conflict_error, excerpt
from swell.cli.config_publishing import stored_sentence
from swell.cli.config_tables import (
    diff_line,
    fleet_bar,
    fleet_line,
    history_table,
    list_table,
    report_sentence,
    status_table,
    unreached_table,
)
from swell.cli.config_words import (
    all_reached,
    data_json,
    history_json,
    publications_json,
    readable,
    report_json,
    size_words,
    span_words,
    status_json,
    time_json,
    time_words,
)
from swell.client.values import Publication
from swell.config.operations import Kept, Row
from swell.config.reports import Awaited, Named, State, StatusReport, StatusRow, Tally
from swell.config.versions import NO_VERSION, Kind
from swell.errors import ConfigurationError, InvalidNameError, StaleVersionError, SwellError

ID = bytes(range(20))
SHORT_ID = "0001020304"


def shown(renderable: Any, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", ()))


# Arguments.


def test_places() -> None:
    assert parse_place("shop/eu/limits.json") == Place("shop", "eu/limits.json")
    assert str(parse_place("shop/a")) == "shop/a"
    assert parse_prefix("shop") == Place("shop", "")
    assert parse_prefix("shop/eu/") == Place("shop", "eu/")
    assert parse_application("shop/") == "shop"
    assert (is_folder("shop/"), is_folder("shop/eu/"), is_folder("shop/a")) == (True, True, False)


@pytest.mark.parametrize("text", ["shop", "shop/", ""])
def test_a_place_needs_both_parts(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write APP/NAME"):
        parse_place(text)


@pytest.mark.parametrize("text", ["shop/../a", "shop//a", "shop/a\x1b", "/a", "shop/e\u0301"])
def test_a_place_follows_the_rules_of_names(text: str) -> None:
    with pytest.raises(InvalidNameError):
        parse_place(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("500ms", 0.5), ("2m", 120.0), ("1.5", 1.5), ("1h", 3600)]
)
def test_times(text: str, seconds: float) -> None:
    assert parse_time_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "0s", "-1s", "3x", "s", "nan", "inf", "1e9"])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(ConfigurationError, match="as in 30s"):
        parse_time_s(text)


def test_assignments_end_at_the_first_bare_equals_sign() -> None:
    words = ["a.b=1", "c=", "d=x=y", '"e=f".g=2', r'"h\"=".i=3']
    assert parse_assignments(words) == [
        ("a.b", "1"),
        ("c", ""),
        ("d", "x=y"),
        ('"e=f".g', "2"),
        (r'"h\"=".i', "3"),
    ]
    for word in ("a", "=1", '"a=1'):
        with pytest.raises(ConfigurationError, match="PATH=VALUE"):
            parse_assignments([word])


def test_an_author_has_a_bound() -> None:
    assert find_author("me") == "me"
    with pytest.raises(ConfigurationError, match="256 characters"):
        find_author("x" * 256)


# Values.


def test_one_value_comes_from_one_place(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"\xff")
    assert one_value([str(file)], None) == Value(b"\xff", file)
    assert one_value([], "") == Value(b"")
    with pytest.raises(ConfigurationError, match="give one value"):
        one_value([str(file)], "text")
    with pytest.raises(ConfigurationError, match="write APP/"):
        one_value([str(file), str(file)], None)
    with pytest.raises(ConfigurationError, match="cannot read"):
        one_value([str(tmp_path / "missing")], None)


def test_several_values_keep_their_names(tmp_path: Path) -> None:
    (tmp_path / "conf" / "eu").mkdir(parents=True)
    (tmp_path / "conf" / "eu" / "b.yaml").write_text("b: 1\n")
    (tmp_path / "conf" / "a.json").write_text("{}")
    (tmp_path / "c=d").write_text("c")
    a = tmp_path / "conf" / "a.json"
    application, values = several_values("shop/", [str(tmp_path / "conf")])
    assert application == "shop"
    assert [*values] == ["a.json", "eu/b.yaml"]
    _, values = several_values("shop/x/", [str(a), f"z.json={a}", str(tmp_path / "c=d")])
    assert {name: value.data for name, value in values.items()} == {
        "x/a.json": b"{}",
        "x/z.json": b"{}",
        "x/c=d": b"c",
    }


def test_several_values_are_some_and_differ(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("p", "q"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(name)
    with pytest.raises(ConfigurationError, match="there is no file"):
        several_values("shop/", [str(tmp_path / "empty")])
    with pytest.raises(ConfigurationError, match="a has two values"):
        several_values("shop/", [str(tmp_path / "p"), str(tmp_path / "q")])


# Words.


def test_sizes() -> None:
    words = [size_words(n) for n in (0, 1023, 1536, 1024 * 1024, 100 * 1024 * 1024)]
    assert words == ["0 B", "1023 B", "1.5 KiB", "1.0 MiB", "100.0 MiB"]


def test_spans() -> None:
    spans = [0.012, 1.25, 12.4, 200, 7500, 350_000]
    assert [span_words(s) for s in spans] == [
        "12 ms", "1.2 s", "12 s", "3 m 20 s", "2 h 5 m", "4 d 1 h",
    ]  # fmt: skip


def test_others_words_cannot_command_a_terminal() -> None:
    assert readable("é ok\x1b[31m\n") == "é ok\\x1b[31m\\n"


def test_times_are_local_for_people_and_utc_for_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    try:
        assert time_words(1_500_000) == "1970-01-01 02:00:01"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert time_json(1_500_000) == "1970-01-01T00:00:01.500000Z"


def test_values_in_json() -> None:
    assert data_json("é".encode()) == {"value": "é", "encoding": "utf-8"}
    assert data_json(b"\xff") == {"value": "/w==", "encoding": "base64"}


def test_publications() -> None:
    made = Publication("a.json", 7, 3, ID, 2048, True)
    assert stored_sentence("shop", made) == (
        f"shop/a.json is at version 3 ({SHORT_ID}), 2.0 KiB, step 7"
    )
    same = made._replace(changed=False)
    assert "is that already: version 3" in stored_sentence("shop", same)
    assert "is deleted: version 3" in stored_sentence("shop", made, deletion=True)
    assert "is deleted already" in stored_sentence("shop", same, deletion=True)
    nothing = Publication("a.json", 7, 0, NO_VERSION, 0, False)
    assert "does not exist" in stored_sentence("shop", nothing, deletion=True)
    assert publications_json("shop", [made]) == {
        "application": "shop",
        "step": 7,
        "changes": [
            {"name": "a.json", "version": 3, "id": ID.hex(), "bytes": 2048, "changed": True}
        ],
    }


# Tables.


def test_a_history_fits_eighty_columns() -> None:
    big = 100 * 1024 * 1024
    versions = [
        Kept(1, ID, NO_VERSION, 5, Kind.WHOLE, big, big, "alice", 0),
        Kept(2, ID, ID, 6, Kind.DELTA, 12, big, "b[red]ob", 0),
        Kept(3, ID, ID, 9, Kind.DELETE, 0, 0, "alice", 0),
    ]
    lines = shown(history_table("shop/a.json", versions), 80).splitlines()
    rows = [line.split() for line in lines if SHORT_ID in line]
    assert [row[0] for row in rows] == ["3", "2", "1"]
    assert "delete" in rows[0]
    assert rows[1][-1] == "b[red]ob"
    assert "12 B" in lines[-3]
    kinds = [one["kind"] for one in history_json("shop", "a.json", versions)["versions"]]
    assert kinds == ["whole", "delta", "delete"]


def test_a_list_shows_odd_names_as_they_are() -> None:
    rows = [Row("a[bold]", 2, ID, 10, 0, "x\x1b")]
    text = shown(list_table("shop", rows))
    assert "a[bold]" in text
    assert "x\\x1b" in text


def status_row(name: str, version: int, **facts: Any) -> StatusRow:
    facts = {"owner": "shop", "state": State.IN_STEP, "relay": "", "reason": "", **facts}
    return StatusRow(
        name, facts["owner"], "a", facts["state"], version, 9, 9, 12.0, facts["relay"], 0.5,
        facts.get("avoided", False), facts["reason"],
    )  # fmt: skip


def test_status_says_who_has_it_and_by_whom() -> None:
    rows = (
        status_row("c1", 3, relay="c7"),
        status_row("c2", 2, state=State.BEHIND, reason="rejected a: too high", avoided=True),
        status_row("c3", 0, owner="till", state=State.OFFLINE),
    )
    report = StatusReport(9, 3, rows)
    lines = shown(status_table(Place("shop", "a"), report), 140).splitlines()
    first, second, third = (
        next(line for line in lines if line.startswith(f" {name}")) for name in ("c1", "c2", "c3")
    )
    assert first.split()[1:] == ["shop", "a", "in", "step", "3", "yes", "12", "s", "c7"]
    assert "no" in second.split()
    assert "rejected a: too high; not used as a relay" in " ".join(second.split())
    assert third.split()[1:6] == ["till", "a", "offline", "?", "no"]
    facts = status_json("shop", "a", report)["containers"]
    assert [one["applied"] for one in facts] == [True, False, False]
    assert [one["state"] for one in facts] == ["in-step", "behind", "offline"]


def test_status_leaves_out_what_says_nothing() -> None:
    text = shown(status_table(Place("shop", "a"), StatusReport(9, 3, (status_row("c1", 3),))))
    assert "application" not in text
    assert "remark" not in text


# Waiting.

FLEET = Awaited(
    True,
    applied=Tally(5, ()),
    delivered=Tally(1, (Named("c5"),)),
    rejected=Tally(1, (Named("c6", "a.json: too high"),)),
    silent=Tally(1, (Named("c7", "silent"),)),
    failed=Tally(3, (Named("c8", "link full"),)),
    offline=Tally(1, (Named("c9", "", 200.0),)),
)


def test_the_bar_is_always_full() -> None:
    for cells in (1, 7, 30):
        assert len(fleet_bar(FLEET, cells).plain) == cells
    assert len(fleet_bar(Awaited(False), 30).plain) == 30
    assert fleet_bar(Awaited(True, applied=Tally(3)), 5).plain == "━━━━━"


def test_the_line_counts_every_class() -> None:
    line = fleet_line("applied", FLEET, 1.25).plain
    assert " 5/12 applied · 1 delivered · 1 rejected · 1 silent · 3 failed · 1 offline" in line
    assert " 6/12 delivered · 1 rejected" in fleet_line("delivered", FLEET, 1.25).plain


def test_failures_are_named() -> None:
    text = shown(unreached_table("applied", FLEET))
    for words in ("c5 delivered", "c6 rejected a.json: too high", "c8 failed link full"):
        assert words in " ".join(text.split())
    assert "offline    since 3 m 20 s" in text
    assert "… and 2 more" in text
    assert "c5" not in shown(unreached_table("delivered", FLEET))


def test_how_waiting_ended() -> None:
    assert report_sentence("applied", FLEET, 2.0) == "applied by 5 of 12 containers in 2.0 s"
    assert report_sentence("applied", Awaited(True), 2.0) == "no container follows it"
    late = Awaited(False, applied=Tally(1))
    assert report_sentence("delivered", late, 2.0) == (
        "delivered to 1 of 1 container in 2.0 s: the deadline is over"
    )
    assert all_reached("applied", Awaited(True, applied=Tally(2)))
    assert all_reached("delivered", Awaited(True, applied=Tally(2), delivered=Tally(1)))
    assert not all_reached("applied", Awaited(True, applied=Tally(2), delivered=Tally(1)))
    assert not all_reached("delivered", Awaited(True, rejected=Tally(1)))
    assert not all_reached("applied", late)


def test_a_report_in_json() -> None:
    facts = report_json("applied", FLEET)
    assert (facts["reached"], facts["containers"], facts["failed"]) == (5, 12, 3)
    assert facts["unreached"][-1] == {
        "container": "c9",
        "state": "offline",
        "reason": "",
        "offline_s": 200.0,
    }


# Errors and differences.


def test_an_invalid_value_is_shown_with_a_caret() -> None:
    value = Value(b'{\n\t"a": 1 "b": 2\n}\n', Path("x.json"))
    with pytest.raises(SwellError, match="line 2, column 9: expected a comma") as caught:
        check_value(Place("shop", "a.json"), value)
    assert "shop/a.json (from x.json) is not valid json" in str(caught.value)
    line, caret = notes(caught.value).split("\n")
    assert line == '2 |  "a": 1 "b": 2'
    assert line[caret.index("^")] == '"'
    check_value(Place("shop", "a.bin"), value)


def test_a_long_line_is_shown_around_the_place() -> None:
    data = b"x" * 1000 + b"!" + b"y" * 1000
    line, caret = excerpt(data, 1, 1001).split("\n")
    assert line[caret.index("^")] == "!"
    assert len(line) < 120
    line, caret = excerpt(b"a\nb", 2, 2).split("\n")
    assert (line, caret) == ("2 | b", "     ^")


def test_a_conflict_says_what_is_there_and_how_to_see_it() -> None:
    stale = StaleVersionError("a.json", 5, ID, False, "")
    error = conflict_error("shop", stale, 3)
    assert str(error) == (
        f"shop/a.json is at version 5 ({SHORT_ID}), not at version 3: nothing was changed"
    )
    assert "swell config diff shop/a.json 3 5" in notes(error)
    error = conflict_error("shop", stale, None)
    assert "exists already, at version 5" in str(error)
    assert "swell config get shop/a.json" in notes(error)
    gone = StaleVersionError("a.json", 5, ID, True, "")
    assert "was deleted with version 5" in str(conflict_error("shop", gone, 3))
    never = StaleVersionError("a.json", 0, NO_VERSION, True, "")
    assert notes(conflict_error("shop", never, 3)) == ""


def test_lines_of_a_difference_have_colours() -> None:
    styles = [diff_line(line).style for line in ("--- a", "+++ b", "@@ -1 +1 @@", "-x", "+y", " z")]
    assert styles == ["bold", "bold", "cyan", "red", "green", ""]
