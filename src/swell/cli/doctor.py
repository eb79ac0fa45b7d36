"""`swell doctor`: which versions of what this machine has, and what is missing for which part.

Exit code 1 if a part that was asked for by name cannot run here.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.markup import escape

from swell import __version__
from swell.cli.tables import print_json
from swell.cli.target import JsonOption
from swell.errors import ConfigurationError, SwellError
from swell.pipeline.java import find_java

PARTS = ("core", "pipeline", "lab")


class Finding(NamedTuple):
    """One thing that was looked for. `problem`: what to do about it; empty if it is there."""

    part: str
    what: str
    found: str
    problem: str = ""


def doctor(
    part: Annotated[
        str, typer.Argument(help="Look at one part alone: core, pipeline or lab.")
    ] = "",
    json: JsonOption = False,
) -> None:
    """Show what Swell needs and what of it is here: Python, packages, Java."""
    if part and part not in PARTS:
        raise ConfigurationError(f"there is no part {part}: choose one of {', '.join(PARTS)}")
    findings = [finding for finding in look() if part in ("", finding.part)]
    if json:
        print_json([finding._asdict() for finding in findings])
    else:
        _print(findings)
    failed = any(finding.problem for finding in findings)
    raise typer.Exit(1 if part and failed else 0)


def look() -> list[Finding]:
    """Everything, part by part."""
    findings = [
        Finding("core", "swell", __version__),
        Finding("core", "Python", platform.python_version()),
    ]
    for part, packages in {
        "core": ("apsw", "cryptography", "msgspec", "uvloop", "zstandard"),
        "pipeline": ("pyspark", "pyarrow", "pandas", "numpy", "matplotlib"),
        "lab": ("numpy", "scipy", "matplotlib", "grpcio"),
    }.items():
        findings += [_package(part, package) for package in packages]
    findings.append(_java())
    return sorted(findings, key=lambda finding: PARTS.index(finding.part))


def _package(part: str, name: str) -> Finding:
    extra = "swell" if part == "core" else f"swell[{part}]"
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(part, name, "", f"run `pip install '{extra}'`")
    refuse = _REFUSED.get(name)
    return Finding(part, name, found, refuse(found) if refuse is not None else "")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(".")[:2] if word.isdigit())


def _pandas(found: str) -> str:
    fits = (2, 2) <= _numbers(found) < (3,)
    return "" if fits else "Spark needs pandas from 2.2 on, below 3: run `pip install 'pandas<3'`"


def _pyspark(found: str) -> str:
    fits = _numbers(found) >= (4, 2)
    return "" if fits else "streams need PySpark 4.2 or later: run `pip install -U pyspark`"


_REFUSED: dict[str, Callable[[str], str]] = {"pandas": _pandas, "pyspark": _pyspark}


def _java() -> Finding:
    try:
        java = find_java()
    except SwellError as error:
        return Finding("pipeline", "Java", "", str(error))
    return Finding("pipeline", "Java", f"{java.version} from {java.origin}: {java.home}")


def _print(findings: list[Finding]) -> None:
    out = Console(highlight=False)
    for part in PARTS:
        own = [finding for finding in findings if finding.part == part]
        if own:
            out.print(f"[bold]{part}[/bold]")
        for finding in own:
            mark = "[red]✗[/red]" if finding.problem else "[green]✓[/green]"
            text = " ".join(word for word in (finding.found, finding.problem) if word)
            out.print(f"  {mark} {finding.what} {escape(text)}", soft_wrap=True)
