"""`swell pipeline`: run a job of the pipeline on a log of events.

The same commands by `python -m swell.pipeline`, which is also what `spark-submit` runs. How they
are run, and what they exit with, is in `swell.pipeline.running`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swell.pipeline.outcome import Outcome
from swell.pipeline.running import Run, job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = 100

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)

EventsOption = Annotated[
    str, typer.Option("--events", metavar="PATH", help="Directory that nodes write events to.")
]
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
WindowOption = Annotated[
    float, typer.Option("--window", help="Seconds; 0: the whole log, a minute of a stream.")
]
SilenceOption = Annotated[
    float, typer.Option("--window", help="Seconds after which a silent flow has ended.")
]


@app.command()
@job("audit")
def audit(
    run: Run,
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
) -> None:
    """Prove that every update reached every container, once, in order and in time."""
    from swell.pipeline import jobs
    from swell.pipeline.audit_settings import AuditSettings

    settings = AuditSettings(
        sla_s=sla, horizon_s=horizon or None, tail_s=tail, complete=not partial
    )

    def compute(spark: SparkSession) -> Outcome:
        if not stream:
            return jobs.audit(spark, events, settings)
        from swell.pipeline import following

        lasting = replace(settings, horizon_s=settings.horizon_s or following.HORIZON_S)
        how = following.Following(events, checkpoint, once, delay_s=delay)
        return following.audit(spark, how, lasting, run.tell)

    run(compute, events)


@app.command()
@job("latency")
def latency(
    run: Run,
    events: EventsOption,
    by: Annotated[
        str, typer.Option("--by", help="Columns to group by: application,site,name.")
    ] = "application,site",
    window: WindowOption = 0.0,
    since: Annotated[
        str, typer.Option("--since", help="Measure from: stored, or sent as every stream.")
    ] = "",
    sla: SlaOption = 3.0,
    stream: StreamOption = False,
    once: OnceOption = False,
    checkpoint: CheckpointOption = "",
    delay: DelayOption = 90.0,
) -> None:
    """Show how long deliveries take: percentiles by application, site, name and time."""
    from swell.pipeline import jobs
    from swell.pipeline.latency import Since

    columns = [column.strip() for column in by.split(",") if column.strip()]
    allowed = ("application", "site", "name", "node", "zone")

    def compute(spark: SparkSession) -> Outcome:
        if not stream:
            begin = Since(since or Since.STORED)
            return jobs.latencies(spark, events, columns, window or None, sla, begin)
        from swell.pipeline import following

        how = following.Following(events, checkpoint, once, delay_s=delay)
        width_s = window or following.WINDOW_S
        return following.latency(spark, how, width_s, columns, sla, run.tell)

    if since not in ("", *Since) or not set(columns) <= set(allowed):
        raise typer.BadParameter(
            f"--since is one of {', '.join(Since)}; --by of {', '.join(allowed)}"
        )
    if stream and since == Since.STORED:
        raise typer.BadParameter("--stream measures from sent: leave --since out")
    run(compute, events)


@app.command()
@job("monitor")
def monitor(
    run: Run,
    events: EventsOption,
    window: SilenceOption = 60.0,
    stream: StreamOption = False,
    once: OnceOption = False,
    checkpoint: CheckpointOption = "",
) -> None:
    """Show topics and nodes: who uses them, from where, how much."""
    from swell.pipeline import jobs

    def compute(spark: SparkSession) -> Outcome:
        if not stream:
            return jobs.monitoring(spark, events, window)
        from swell.pipeline import following

        how = following.Following(events, checkpoint, once)
        return following.monitor(spark, how, window, run.tell)

    run(compute, events)


@app.command()
@job("plan")
def plan(
    run: Run,
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
    window: SilenceOption = 60.0,
) -> None:
    """Plan which topics should move to which nodes."""
    from swell.pipeline import jobs
    from swell.placement.planning import PlanSettings

    wanted = jobs.Limits(limit_ms or None, limits, window)
    settings = PlanSettings(rate_out_max=rate_max)
    run(lambda spark: jobs.planning(spark, events, wanted, settings), events)


@app.command()
@job("workload")
def workload(
    run: Run,
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
) -> None:
    """Describe the load and recommend settings for it."""
    from swell.pipeline import jobs, publishing

    def compute(spark: SparkSession) -> Outcome:
        outcome = jobs.characterization(spark, events)
        if publish:
            target = publishing.Target(publish, cluster, certificates or None)
            outcome.notes.append(publishing.publish(outcome, target))
        return outcome

    run(compute, events)


@app.command()
@job("replay")
def replay(
    run: Run,
    fraction: Annotated[float, typer.Option("--fraction", help="Part of the day.")] = 1.0,
    quick: Annotated[bool, typer.Option("--quick", help="A hundredth of it.")] = False,
    reading: Annotated[
        str, typer.Option("--reading", help="Which figure holds: total or mean.")
    ] = "total",
    servers: Annotated[int, typer.Option("--servers", help="Of the cluster.")] = 60,
    messages: Annotated[
        float, typer.Option("--messages", help="Messages per second that a server can send.")
    ] = 100_000.0,
    followers: Annotated[int, typer.Option("--followers", help="Of an application.")] = 100,
) -> None:
    """Replay the Double 11 day: what each server would carry, and how many it takes."""
    from swell.pipeline import jobs
    from swell.pipeline.generate import Day, Reading
    from swell.pipeline.replay import Servers

    if reading not in list(Reading) or servers < 1 or followers < 1 or messages <= 0:
        raise typer.BadParameter("--reading is total or mean; the others are above 0")

    def compute(spark: SparkSession) -> Outcome:
        part = fraction / QUICK if quick else fraction
        day = Day(Reading(reading), part, followers=followers)
        return jobs.replaying(spark, day, Servers(servers, messages))

    run(compute)


def main(arguments: list[str] | None = None) -> Any:
    """Entry point of `python -m swell.pipeline` and of spark-submit."""
    app(arguments, prog_name="swell pipeline")
