"""How a command of the pipeline is run: Spark is started, the job computes, the outcome is told.

All jobs have the same four options for that. A command names them by one parameter, `run`; `job`
puts the options in its place. Exit codes: 0 done and nothing wrong, 1 the audit found violations,
2 it could not be done, 130 Ctrl-C. With `--json` standard output carries the JSON and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
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

Job = Callable[["SparkSession"], Outcome]


class Run:
    """Where Spark is, and where the outcome goes."""

    def __init__(self, job: str, master: str, memory: str, out: Path | None, json: bool) -> None:
        self.job = job
        self.settings = SessionSettings(master=master, memory=memory, name=f"swell {job}")
        self.out = out
        self.json = json

    def __call__(self, job: Job, events: str | None = None) -> None:
        """Run it, tell the outcome and exit with its code."""
        check_out(self.out)
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
        raise typer.Exit(outcome.exit_code)

    def tell(self, rows: list[dict[str, Any]]) -> None:
        """What a stream found in a batch: as lines of JSON, or as a table."""
        if self.json:
            for row in rows:
                print(to_line(row), flush=True)
        else:
            show(Outcome("found", tables={"found": rows}), as_json=False)


def _options(
    master: Annotated[
        str, typer.Option("--master", help="Of Spark: local[2], spark://HOST:7077; all cores.")
    ] = "",
    memory: Annotated[str, typer.Option("--memory", help="Of Spark's driver.")] = "2g",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write tables and reports here.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> tuple[str, str, Path | None, bool]:
    """The options of all jobs, in the order that `Run` takes them in."""
    return master, memory, out, json


def job(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The command of a job: its function takes a `Run` as `run`, the command the options for it.
    What goes wrong is said in one sentence."""

    def decorated(function: Callable[..., None]) -> Callable[..., None]:
        shared = signature(_options, eval_str=True).parameters
        own = signature(function, eval_str=True).parameters
        every = [own[key] for key in own if key != "run"] + list(shared.values())

        @wraps(function)
        def command(**given: Any) -> None:
            options = _options(**{key: given.pop(key) for key in shared})
            try:
                check_packages()
                function(run=Run(name, *options), **given)
            except SwellError as error:
                print(f"swell pipeline {name}: {error}", file=sys.stderr)
                raise typer.Exit(EXIT_FAILED) from None
            except KeyboardInterrupt:
                print(f"swell pipeline {name}: interrupted", file=sys.stderr)
                raise typer.Exit(EXIT_INTERRUPTED) from None

        command.__dict__["__signature__"] = Signature(
            [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in every]
        )
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
        return command

    return decorated
