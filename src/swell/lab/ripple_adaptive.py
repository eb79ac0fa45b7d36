"""Figure 13 of Ripple: a load that changes for 150 s, with relays picked by load or by name.

Of every application one container is slow, as on a machine that has other work: the one that would
be picked by name. It tells so by its score, and another is picked; without adaptive load balancing
everybody behind it gets everything late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from swell.lab.experiment import Bar, Lab, Report
from swell.lab.plots import figure
from swell.lab.ripple_publisher import Phase
from swell.lab.ripple_run import Outcome, RippleSettings, ripple_run
from swell.lab.ripple_sweep import BASE, QUICK, RATE_PER_S, busy, is_passed, settings_of
from swell.settings import ConfigSettings

SUMMARY = "Ripple, Fig. 13: 150 s of changing load, relays picked by load against by name"

PAPER_RATES_PER_S = (500.0, 1000.0, 2000.0, 500.0, 1500.0)
PAPER_RATE_PER_S = 1000.0
"""Its default, to which the rates here are in the same proportion."""
PAPER_MS = {True: 208.21, False: 287.73}
"""Means over all phases; by whether it is adaptive."""
PHASE_S, PHASE_QUICK_S = 30.0, 4.0
SCORE_QUICK_S = 1.0
SLOW_QUICK_S = 0.03
"""Fewer slow containers wait for each other; each is slower for it."""
WORSE = 1.2


def settings_with(adaptive: bool, quick: bool) -> RippleSettings:
    base = QUICK if quick else BASE
    share = base.rate_per_s / PAPER_RATE_PER_S
    seconds = PHASE_QUICK_S if quick else PHASE_S
    score_s = SCORE_QUICK_S if quick else ConfigSettings().score_s
    return base._replace(
        phases=tuple(Phase(seconds, rate * share) for rate in PAPER_RATES_PER_S),
        slow=base.applications,
        slow_s=SLOW_QUICK_S if quick else base.slow_s,
        config=msgspec.structs.replace(base.config, adaptive=adaptive, score_s=score_s),
    )


def run(lab: Lab) -> Report:
    outcomes = {}
    with lab.progress("ripple-adaptive", 2) as advance:
        for adaptive in (True, False):
            outcomes[adaptive] = ripple_run(settings_with(adaptive, lab.quick))
            advance()
    settings = settings_with(True, lab.quick)
    _plot(lab, outcomes)
    return Report(
        settings=settings_of(settings) | {"slow": settings.slow, "slow_s": settings.slow_s},
        rows=rows_of(settings.phases, outcomes),
        headline={
            f"mean in ms, {'by load' if adaptive else 'by name'}": round(outcome.mean_ms, 2)
            for adaptive, outcome in outcomes.items()
        },
        bars=bars(outcomes),
        notes=NOTES,
    )


def phase_means(phases: Sequence[Phase], per_second_ms: Sequence[float]) -> list[float]:
    """Mean over the seconds of each phase."""
    means, at = [], 0
    for phase in phases:
        end = at + round(phase.seconds)
        seconds = per_second_ms[at:end]
        means.append(round(sum(seconds) / len(seconds), 2) if seconds else float("nan"))
        at = end
    return means


def rows_of(phases: Sequence[Phase], outcomes: dict[bool, Outcome]) -> list[dict[str, Any]]:
    by_load, by_name = (
        phase_means(phases, outcomes[adaptive].per_second_ms) for adaptive in (True, False)
    )
    rows: list[dict[str, Any]] = [
        {
            "phase": str(number),
            "rate_per_s": phase.rate_per_s,
            "by_load_ms": loaded,
            "by_name_ms": named,
            "paper_by_load_ms": "figure only",
            "paper_by_name_ms": "figure only",
        }
        for number, (phase, loaded, named) in enumerate(
            zip(phases, by_load, by_name, strict=True), start=1
        )
    ]
    whole = {
        "phase": "all",
        "by_load_ms": round(outcomes[True].mean_ms, 2),
        "by_name_ms": round(outcomes[False].mean_ms, 2),
        "paper_by_load_ms": PAPER_MS[True],
        "paper_by_name_ms": PAPER_MS[False],
        "busy": round(max(map(busy, outcomes.values())), 2),
    }
    return [*rows, whole]


def bars(outcomes: dict[bool, Outcome]) -> list[Bar]:
    return [
        Bar.at_most(
            "runs not passed", 0, sum(not is_passed(outcome) for outcome in outcomes.values())
        ),
        Bar.at_least(
            "mean latency by name against by load (the paper: 1.38)",
            WORSE,
            round(outcomes[False].mean_ms / outcomes[True].mean_ms, 3),
        ),
    ]


def _plot(lab: Lab, outcomes: dict[bool, Outcome]) -> None:
    with figure(
        lab, "ripple-adaptive", "Ripple, Fig. 13: a changing load", "seconds", "mean latency in ms"
    ) as axes:
        for adaptive, outcome in outcomes.items():
            label = "relays by load" if adaptive else "relays by name"
            axes.plot(outcome.per_second_ms, label=label)
        axes.set_ylim(bottom=0)


NOTES = (
    f"rates in the proportion of the paper's (500, 1,000, 2,000, 500, 1,500), at "
    f"{RATE_PER_S / PAPER_RATE_PER_S:g} of them; quick: smaller and shorter",
    "slow: the first container of every application by name; it takes `slow_s` for every burst, "
    "and shares a process with the others like it",
    "the slow ones' own latencies are part of every mean",
)
