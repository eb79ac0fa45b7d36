"""The three parts of the comparison of stores: closed loop, busy server, recovery.

Every part takes the systems as they run and gives rows for the report. Which server of a system is
the busiest, and how it is burdened, is the system's own knowledge.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from swell.lab.store_load import LoadProcess
from swell.lab.store_worker import Outcome, Trial
from swell.world import Address

CLIENTS = (1, 16, 64)
OPERATIONS = ("put", "get")
MOST = CLIENTS[-1]
RECOVERY_CLIENTS = 16

BUSY_CPU = 0.9
BUSY_SHARE = 0.3
"""Of the slowest system's closed loop with most clients: the schedule of the busy part."""
BUSY_TOLERANCE = 0.05
BURDEN_FIRST_PER_S = 25.0
BURDEN_CPU_MIN = 1e-6
"""Processor time of one such request, at least."""
BURDEN_TRIES = 7
KEEPS_UP = 0.9
"""Of its schedule an open loop must have got so much done, or it says nothing."""

Row = dict[str, Any]
Advance = Callable[..., None]


class Servers(Protocol):
    """A running cluster of some system."""

    version: str

    @property
    def pids(self) -> tuple[int, ...]: ...

    def addresses(self) -> tuple[Address, ...]: ...

    def busiest(self) -> int: ...

    def kill(self, place: int) -> None: ...


class Plan(NamedTuple):
    """How thoroughly to measure."""

    rounds: int
    warm_up_s: float
    seconds: float
    """Of one point in one round."""
    before_kill_s: float
    after_kill_s: float


FULL = Plan(rounds=5, warm_up_s=0.6, seconds=3.0, before_kill_s=3.0, after_kill_s=15.0)
QUICK = Plan(rounds=2, warm_up_s=0.3, seconds=1.5, before_kill_s=1.0, after_kill_s=8.0)


class System(NamedTuple):
    """What is measured: a cluster and a load process."""

    name: str
    servers: Servers
    load: LoadProcess

    def measure(self, operation: str, clients: int, plan: Plan) -> Outcome:
        """A closed loop."""
        return self.load.measure(
            Trial(operation, clients, plan.warm_up_s, plan.seconds, self.servers.pids)
        )

    def measure_schedule(self, plan: Plan, puts_per_s: float, burden_per_s: float) -> Outcome:
        """An open loop of puts, and requests that only burden beside it."""
        return self.load.measure(
            Trial(
                "put",
                0,
                plan.warm_up_s,
                plan.seconds,
                self.servers.pids,
                puts_per_s,
                burden_per_s,
            )
        )


class Burdened(NamedTuple):
    """A trial of the busy part."""

    burden_per_s: float
    outcome: Outcome

    @property
    def distance(self) -> float:
        """From as busy as wanted."""
        return abs(max(self.outcome.server_cpu) - BUSY_CPU)


def closed_loops(systems: Sequence[System], plan: Plan, advance: Advance) -> list[Row]:
    """The systems take turns at every point, in changing order."""
    rows = []
    for operation in OPERATIONS:
        for clients in CLIENTS:
            found: dict[str, list[Outcome]] = {system.name: [] for system in systems}
            for number in range(plan.rounds):
                for system in systems if number % 2 else reversed(systems):
                    found[system.name].append(system.measure(operation, clients, plan))
                    advance()
            rows += [
                row_of("closed loop", name, operation, outcomes) | {"clients": clients}
                for name, outcomes in found.items()
            ]
    return rows


def row_of(part: str, name: str, operation: str, outcomes: Sequence[Outcome]) -> Row:
    """Medians over the rounds."""
    servers = sorted(zip(*(outcome.server_cpu for outcome in outcomes), strict=True))
    median = statistics.median
    return {
        "part": part,
        "operation": operation,
        "system": name,
        "per_s": round(median(outcome.rate_per_s for outcome in outcomes)),
        "p50_ms": round(median(outcome.p50_ms for outcome in outcomes), 2),
        "p99_ms": round(median(outcome.p99_ms for outcome in outcomes), 2),
        "p99_ms_max": round(max(outcome.p99_ms for outcome in outcomes), 2),
        "client_cpu": round(median(outcome.client_cpu for outcome in outcomes), 2),
        "servers_cpu": round(sum(map(median, servers)), 2),
        "busiest_cpu": round(max(map(median, servers)), 2),
        "failed": sum(outcome.failures + outcome.wrong for outcome in outcomes),
    }


def busy_servers(
    systems: Sequence[System],
    plan: Plan,
    rows: Sequence[Row],
    advance: Advance,
) -> list[Row]:
    """Latency of puts while the busiest server has little time left."""
    slowest = min(
        row["per_s"] for row in rows if row["operation"] == "put" and row["clients"] == MOST
    )
    scheduled_per_s = BUSY_SHARE * slowest
    found = []
    for system in systems:
        burdened = find_burden(
            partial(system.measure_schedule, plan, scheduled_per_s), scheduled_per_s
        )
        found.append(
            row_of("busy server", system.name, "put", [burdened.outcome])
            | {
                "offered_per_s": round(scheduled_per_s),
                "burden_per_s": round(burdened.burden_per_s),
            }
        )
        advance()
    return found


def find_burden(measure: Callable[[float], Outcome], scheduled_per_s: float) -> Burdened:
    """How many requests beside the puts keep the busiest server as busy as wanted: what one of
    them costs is known from the trial before. The closest trial in which the puts kept up with
    their schedule counts."""
    trial = best = Burdened(0.0, measure(0.0))
    idle_cpu = max(trial.outcome.server_cpu)
    for _ in range(BURDEN_TRIES):
        if trial.distance <= BUSY_TOLERANCE or max(trial.outcome.server_cpu) > BUSY_CPU:
            break
        if trial.outcome.rate_per_s < KEEPS_UP * scheduled_per_s or trial.outcome.dropped:
            break  # more than the server can do, whatever its share of a core is
        burden_per_s = BURDEN_FIRST_PER_S
        if trial.burden_per_s:
            used_cpu = max(trial.outcome.server_cpu) - idle_cpu
            cost = max(BURDEN_CPU_MIN, used_cpu / trial.burden_per_s)
            burden_per_s = min(4 * trial.burden_per_s, (BUSY_CPU - idle_cpu) / cost)
        trial = Burdened(burden_per_s, measure(burden_per_s))
        kept_up = trial.outcome.rate_per_s >= KEEPS_UP * scheduled_per_s
        if kept_up and trial.distance < best.distance:
            best = trial
    return best


def recovery(system: System, plan: Plan) -> Row:
    """Kill the node that most depends on, under load, and see how long puts waited."""
    victim = system.servers.busiest()
    seconds = plan.before_kill_s + plan.after_kill_s
    system.load.begin(Trial("put", RECOVERY_CLIENTS, plan.warm_up_s, seconds, system.servers.pids))
    time.sleep(plan.warm_up_s + plan.before_kill_s)
    killed_s = time.monotonic()
    system.servers.kill(victim)
    outcome = system.load.end(seconds)
    return {
        "part": "recovery after kill -9",
        "system": system.name,
        "clients": RECOVERY_CLIENTS,
        "restored_s": round(restored_s(outcome, killed_s), 2),
        "longest_put_s": round(
            max((slow.ended_s - slow.begun_s for slow in outcome.slow), default=0.0), 2
        ),
        "no_put_at_all_s": round(outcome.gap_s, 2),
        "puts_that_waited": len(outcome.slow),
        "failed": outcome.failures,
    }


def restored_s(outcome: Outcome, killed_s: float) -> float:
    """From the kill until the last of the puts that waited had ended."""
    ends = [slow.ended_s - killed_s for slow in outcome.slow if slow.ended_s > killed_s]
    return max(ends, default=0.0)
