"""Small programs in front of others, which change how Spark starts them.

They lie in the cache of the user, `~/.cache/swell` unless `XDG_CACHE_HOME` says otherwise, and are
written again where they are missing or differ.
"""

from __future__ import annotations

import os
import sys
from hashlib import sha256
from pathlib import Path

_PYTHON = """\
#!/bin/sh
# {python} with the PySpark that is installed for it.
set -f
kept=
IFS=:
for path in $PYTHONPATH; do
    case "$path" in
        "{spark}"/*) ;;
        *) kept="${{kept:+$kept:}}$path" ;;
    esac
done
unset IFS
export PYTHONPATH="$kept"
exec "{python}" "$@"
"""


def python_shim(spark: Path, cache: Path | None = None) -> Path:
    """This Python for the processes that Spark starts, without the archives of the package `spark`
    on its path. Spark puts there a copy of PySpark as a zip file, which is compiled again in each
    process: a second until a streaming query starts. The installed package is the same and
    compiled."""
    text = _PYTHON.format(python=sys.executable, spark=spark)
    return write_shim("python", f"{sys.executable} {spark}", text, cache)


def write_shim(name: str, of: str, text: str, cache: Path | None = None) -> Path:
    """The path of a program called `name` that stands before `of`, in a directory `bin` of its
    own."""
    if cache is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swell" / name
    program = cache / sha256(of.encode()).hexdigest()[:16] / "bin" / name
    if not program.exists() or program.read_text(encoding="utf-8") != text:
        program.parent.mkdir(parents=True, exist_ok=True)
        # Another process may be doing the same: each writes a file of its own and renames it.
        part = program.with_name(f"{name}.{os.getpid()}")
        part.write_text(text, encoding="utf-8")
        part.chmod(0o755)
        part.replace(program)
    return program
