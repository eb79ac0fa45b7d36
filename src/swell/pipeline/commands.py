"""`swell pipeline`: run a job of the pipeline on a log of events.

The same commands by `python -m swell.pipeline`, which is also what `spark-submit` runs. Exit codes:
0 done and nothing wrong, 1 the audit found violations, 2 it could not be done, 130 Ctrl-C. With
`--json` standard output carries the JSON and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swell.errors import SwellError
from swell.pipeline.failures import plain_errors
from swell.pipeline.outcome import Outcome, check_out, show, to_line, write
from swell.pipeline.progress import shown
from swell.pipeline.session import SessionSettings, check_packages, open_session
from swell.pipeline.source_files import find_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_FAILED = 2
EXIT_INTERRUPTED = 130

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

EventsOption = Annotated[
    str, typer.Option("--events", metavar="PATH", help="Directory that nodes write events to.")
]
MasterOption = Annotated[
    str, typer.Option("--master", help="Of Spark: local[2], spark://HOST:7077; all cores.")
]
MemoryOption = Annotated[str, typer.Option("--memory", help="Of Spark's driver.")]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Write tables and reports here.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
StreamOption = Annotated[
    bool, typer.Option("--stream", help="Follow the log while it grows, until Ctrl-C.")
]
OnceOption = Annotated[
    bool, typer.Option("--once", help="With --stream: end with what is there now.")
]
CheckpointOption = Annotated[
    str, typer.Option("--checkpoint", metavar="DIR", help="With --stream: go on from here.")
]
DelayOption = Annotated[
    float, typer.Option("--delay", help="With --stream: seconds that rows may come late.")
]
SlaOption = Annotated[float, typer.Option("--sla", help="Seconds a delivery may take.")]
WindowOption = Annotated[float, typer.Option("--window", help="Seconds; 0: the whole log.")]

Job = Callable[["SparkSession"], Outcome]


class Run:
    """How a job is run: where Spark is, and where the outcome goes."""

    def __init__(self, job: str, master: str, memory: str, out: Path | None, json: bool) -> None:
        self.job = job
        self.settings = SessionSettings(master=master, memory=memory, name=f"swell {job}")
        self.out = out
        self.json = json

    def __call__(self, job: Job, events: str | None = None) -> None:
        """Run it, tell the outcome and exit with its code."""
        try:
            code = self._run(job, events)
        except SwellError as error:
            print(f"swell pipeline {self.job}: {error}", file=sys.stderr)
            code = EXIT_FAILED
        except KeyboardInterrupt:
            print(f"swell pipeline {self.job}: interrupted", file=sys.stderr)
            code = EXIT_INTERRUPTED
        raise typer.Exit(code)

    def _run(self, job: Job, events: str | None) -> int:
        check_out(self.out)
        check_packages()
        if events is not None:
            find_log(events)  # a wrong path is told before Spark has started
        with plain_errors():
            with shown("starting Spark"):
                session = open_session(self.settings)
                spark = session.__enter__()
            try:
                with shown(self.job, spark):
                    outcome = job(spark)
                    written = write(outcome, self.out) if self.out is not None else []
            except BaseException:
                session.__exit__(*sys.exc_info())
                raise
            session.__exit__(None, None, None)
        show(outcome, self.json, written)
        return outcome.exit_code


def _tell(json: bool) -> Callable[[list[dict[str, Any]]], None]:
    """What a stream found, batch by batch: as lines of JSON, or as tables."""

    def tell(rows: list[dict[str, Any]]) -> None:
        if json:
            for row in rows:
                print(to_line(row), flush=True)
        else:
            show(Outcome("found", tables={"found": rows}), as_json=False)

    return tell


@app.command()
def audit(
    events: EventsOption,
    sla: SlaOption = 3.0,
    horizon: Annotated[
        float,
        typer.Option("--horizon", help="Seconds after which a delivery is missing; 0: never."),
    ] = 0.0,
    tail: Annotated[
        float, typer.Option("--tail", help="Seconds at the log's end that are not judged.")
    ] = 0.0,
    partial: Annotated[
        bool, typer.Option("--partial", help="The log does not begin with the cluster.")
    ] = False,
    stream: StreamOption = False,
    once: OnceOption = False,
    checkpoint: CheckpointOption = "",
    delay: DelayOption = 90.0,
    master: MasterOption = "",
    memory: MemoryOption = "2g",
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Prove that every update reached every container, once, in order and in time."""
    from swell.pipeline import jobs
    from swell.pipeline.audit_settings import AuditSettings

    settings = AuditSettings(
        sla_s=sla, horizon_s=horizon or None, tail_s=tail, complete=not partial
    )

    def job(spark: SparkSession) -> Outcome:
        if not stream:
            return jobs.audit(spark, events, settings)
        from swell.pipeline import following

        lasting = replace(settings, horizon_s=settings.horizon_s or following.HORIZON_S)
        how = following.Following(events, checkpoint, once, delay_s=delay)
        return following.audit(spark, how, lasting, _tell(json))

    Run("audit", master, memory, out, json)(job, events)


@app.command()
def latency(
    events: EventsOption,
    by: Annotated[
        str, typer.Option("--by", help="Columns to group by: application,site,name.")
    ] = "application,site",
    window: WindowOption = 0.0,
    since: Annotated[str, typer.Option("--since", help="Measure from: stored or sent.")] = "stored",
    sla: SlaOption = 3.0,
    master: MasterOption = "",
    memory: MemoryOption = "2g",
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Show how long deliveries take: percentiles by application, site, name and time."""
    from swell.pipeline import jobs
    from swell.pipeline.latency import Since

    columns = [column.strip() for column in by.split(",") if column.strip()]
    allowed = ("application", "site", "name", "node", "zone")

    def job(spark: SparkSession) -> Outcome:
        return jobs.latencies(spark, events, columns, window or None, sla, Since(since))

    run = Run("latency", master, memory, out, json)
    if since not in list(Since) or not set(columns) <= set(allowed):
        raise typer.BadParameter(
            f"--since is one of {', '.join(Since)}; --by of {', '.join(allowed)}"
        )
    run(job, events)


@app.command()
def monitor(
    events: EventsOption,
    window: Annotated[
        float, typer.Option("--window", help="Seconds after which a silent flow has ended.")
    ] = 60.0,
    stream: StreamOption = False,
    once: OnceOption = False,
    checkpoint: CheckpointOption = "",
    master: MasterOption = "",
    memory: MemoryOption = "2g",
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Show topics and nodes: who uses them, from where, how much."""
    from swell.pipeline import jobs

    def job(spark: SparkSession) -> Outcome:
        if not stream:
            return jobs.monitoring(spark, events, window)
        from swell.pipeline import following

        how = following.Following(events, checkpoint, once)
        return following.monitor(spark, how, window, _tell(json))

    Run("monitor", master, memory, out, json)(job, events)


@app.command()
def plan(
    events: EventsOption,
    limit_ms: Annotated[
        float, typer.Option("--limit-ms", help="Latency that topics allow; 0: any.")
    ] = 0.0,
    limits: Annotated[
        str, typer.Option("--limits", metavar="FILE", help="CSV: topic,limit_ms.")
    ] = "",
    rate_max: Annotated[
        float, typer.Option("--rate-max", help="Messages per second that a node may send.")
    ] = 1_500_000.0,
    window: Annotated[
        float, typer.Option("--window", help="Seconds after which a silent flow has ended.")
    ] = 60.0,
    master: MasterOption = "",
    memory: MemoryOption = "2g",
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Plan which topics should move to which nodes."""
    from swell.pipeline import jobs
    from swell.placement.planning import PlanSettings

    wanted = jobs.Limits(limit_ms or None, limits, window)
    settings = PlanSettings(rate_out_max=rate_max)
    Run("plan", master, memory, out, json)(
        lambda spark: jobs.planning(spark, events, wanted, settings), events
    )


@app.command()
def workload(
    events: EventsOption,
    publish: Annotated[
        str,
        typer.Option(
            "--publish", metavar="HOST:PORT,…", help="Write the thresholds to this cluster."
        ),
    ] = "",
    cluster: Annotated[str, typer.Option("--cluster", help="With --publish: its id.")] = "local",
    certificates: Annotated[
        str, typer.Option("--certificates", metavar="DIR", help="With --publish: for TLS.")
    ] = "",
    master: MasterOption = "",
    memory: MemoryOption = "2g",
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Describe the load and recommend settings for it."""
    from swell.pipeline import jobs, publishing

    def job(spark: SparkSession) -> Outcome:
        outcome = jobs.characterization(spark, events)
        if publish:
            target = publishing.Target(publish, cluster, certificates or None)
            outcome.notes.append(publishing.publish(outcome, target))
        return outcome

    Run("workload", master, memory, out, json)(job, events)


@app.command()
def replay(
    fraction: Annotated[float, typer.Option("--fraction", help="Part of the day.")] = 0.01,
    reading: Annotated[
        str, typer.Option("--reading", help="Which figure holds: total or mean.")
    ] = "total",
    servers: Annotated[int, typer.Option("--servers", help="Of the cluster.")] = 60,
    messages: Annotated[
        float, typer.Option("--messages", help="Messages per second that a server can send.")
    ] = 100_000.0,
    followers: Annotated[int, typer.Option("--followers", help="Of an application.")] = 100,
    master: MasterOption = "",
    memory: MemoryOption = "2g",
    out: OutOption = None,
    json: JsonOption = False,
) -> None:
    """Replay the Double 11 day: what each server would carry, and how many it takes."""
    from swell.pipeline import jobs
    from swell.pipeline.generate import Day, Reading
    from swell.pipeline.replay import Servers

    if reading not in list(Reading) or servers < 1 or followers < 1 or messages <= 0:
        raise typer.BadParameter("--reading is total or mean; the others are above 0")

    def job(spark: SparkSession) -> Outcome:
        day = Day(Reading(reading), fraction, followers=followers)
        return jobs.replaying(spark, day, Servers(servers, messages))

    Run("replay", master, memory, out, json)(job)


def main(arguments: list[str] | None = None) -> Any:
    """Entry point of `python -m swell.pipeline` and of spark-submit."""
    app(arguments, prog_name="swell pipeline")
