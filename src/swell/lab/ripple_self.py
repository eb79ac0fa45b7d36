"""Figure 12 of Ripple: each mechanism switched off in turn, everything else as it is.

What a mechanism saves is seen under a load that needs it, so there are four:

- *default*: the shape of the paper's default load, for relaying and incremental updates;
- *edits*: the same, but every update changes one key. With the default's whole values, which are
  replicated whole whatever is delivered, and with updates that wait for each other and go as one
  value, incremental delivery saves less;
- *long lists*: many containers per application and small updates, where a destination list is
  longer than the burst that it goes with, for the digests of lists;
- *slow relays*: of every application one container is slow, the one that would be picked by name,
  for the choice of relays by their load.

The paper's first component, the spread of applications over servers, has no switch here: it is what
`ripple-servers` changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from swell.lab.experiment import Bar, Lab, Report
from swell.lab.ripple_run import RippleSettings
from swell.lab.ripple_sweep import BASE, QUICK, SWELL, run_row, settings_of, sound
from swell.settings import ConfigSettings

SUMMARY = "Ripple, Fig. 12: every mechanism switched off in turn, and what becomes worse"

ALL_ON = "all on"
SCORE_S = 1.0
"""Scores are told so often: a run is short."""
SLOW_QUICK_S = 0.03
"""Fewer slow containers wait for each other; each is slower for it."""


class Switch(NamedTuple):
    """A mechanism, and the figure that is worse without it."""

    field: str
    column: str
    worse: float
    """At least by this factor."""
    paper: str
    """How much worse the paper's latency is, at 100 and at 2,500 updates per second."""


class Load(NamedTuple):
    name: str
    settings: RippleSettings
    quick: RippleSettings
    switches: tuple[Switch, ...]


LOADS = (
    Load(
        "default",
        BASE,
        QUICK,
        (
            Switch("relaying", "server_KiB_per_update", 2.0, "1.11 to 1.88"),
            Switch("incremental", "server_KiB_per_update", 1.1, "1.20 to 3.00"),
        ),
    ),
    Load(
        "edits",
        BASE._replace(incremental=1.0),
        QUICK._replace(incremental=1.0),
        (Switch("incremental", "server_KiB_per_update", 2.0, "1.20 to 3.00"),),
    ),
    Load(
        "long lists",
        BASE._replace(applications=5, payload_bytes=1_000, incremental=1.0),
        QUICK._replace(containers=100, applications=2, payload_bytes=1_000, incremental=1.0),
        (Switch("list_digests", "server_KiB_per_update", 1.2, ""),),
    ),
    Load(
        "slow relays",
        BASE._replace(slow=BASE.applications, config=ConfigSettings(score_s=SCORE_S)),
        QUICK._replace(
            slow=QUICK.applications,
            slow_s=SLOW_QUICK_S,
            warm_up_s=3.0,
            config=ConfigSettings(score_s=SCORE_S),
        ),
        (Switch("adaptive", "mean_ms", 1.2, "1.38 (Fig. 13)"),),
    ),
)


def run(lab: Lab) -> Report:
    rows: list[dict[str, Any]] = []
    bars: list[Bar] = []
    with lab.progress("ripple-self", sum(1 + len(load.switches) for load in LOADS)) as advance:
        for load in LOADS:
            settings = load.quick if lab.quick else load.settings
            whole = _row(load, ALL_ON, settings)
            rows.append(whole)
            advance()
            for switch in load.switches:
                config = msgspec.structs.replace(settings.config, **{switch.field: False})
                row = _row(load, f"no {switch.field}", settings._replace(config=config))
                rows.append(compared(row, whole, switch))
                bars.append(bar_of(row, whole, switch, load.name))
                advance()
    return Report(
        settings={
            load.name: settings_of(load.quick if lab.quick else load.settings) for load in LOADS
        },
        rows=rows,
        headline={bar.what: bar.measured for bar in bars if not isinstance(bar.measured, str)},
        bars=[*sound(rows), *bars],
        columns=COLUMNS,
        notes=NOTES,
    )


def _row(load: Load, mechanism: str, settings: RippleSettings) -> dict[str, Any]:
    return {"load": load.name, "mechanisms": mechanism, **run_row(SWELL, settings)}


def ratio(row: Mapping[str, Any], whole: Mapping[str, Any], column: str) -> float | None:
    """How much more than with everything on."""
    one, other = row.get(column), whole.get(column)
    return round(one / other, 3) if one is not None and other else None


def compared(row: dict[str, Any], whole: Mapping[str, Any], switch: Switch) -> dict[str, Any]:
    return row | {
        "latency_ratio": ratio(row, whole, "mean_ms"),
        "cpu_ratio": ratio(row, whole, "server_cores"),
        "bytes_ratio": ratio(row, whole, "server_KiB_per_update"),
        "matching": switch.column.replace("_", " "),
        "paper_latency_ratio": switch.paper,
    }


def bar_of(row: Mapping[str, Any], whole: Mapping[str, Any], switch: Switch, load: str) -> Bar:
    figure = switch.column.replace("_", " ")
    what = f"{load}: {figure} without {switch.field}, by that with it"
    found = ratio(row, whole, switch.column)
    return (
        Bar.not_measured(what, switch.worse)
        if found is None
        else Bar.at_least(what, switch.worse, found)
    )


COLUMNS = (
    "load", "mechanisms", "passed", "mean_ms", "p99_ms", "server_cores", "server_KiB_per_update",
    "container_cores", "other_cores", "busy", "latency_ratio", "cpu_ratio", "bytes_ratio",
    "matching", "paper_latency_ratio", "failure",
)  # fmt: skip

NOTES = (
    "ratios: against the row above with all mechanisms on; matching: the figure that the "
    "mechanism is there for",
    "long lists: 5 applications of 100 containers (quick: 2 of 50), values of 1 KB of which one "
    "key changes; slow relays: the first container of every application takes 10 ms (quick: "
    "30 ms) for each burst, in a process with the others like it",
    "servers and containers share one machine: what a relay takes from a server, it takes from "
    "the same processors, so relaying saves server bytes and server processor time here, and "
    "latency only where servers have processors of their own",
)
