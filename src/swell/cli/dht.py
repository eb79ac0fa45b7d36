"""`swell dht`: the nine operations of the distributed hash table.

`get` writes the value as it is to standard output. A value on the command line is text; `--file`
or `-` (standard input) take any bytes.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import uvloop

from swell.cli.tables import print_json, write
from swell.cli.target import (
    DEFAULT_DIR,
    ClusterOption,
    ConnectOption,
    DirOption,
    JsonOption,
    NodeOption,
    Target,
    find_target,
)
from swell.client.connection import Connection
from swell.client.dht import Dht
from swell.dht.keys import check_value, encode_key
from swell.errors import ConfigurationError, SwellError

app = typer.Typer(no_args_is_help=True)

T = TypeVar("T")

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="1 to 512 bytes of UTF-8.")]
ValueArgument = Annotated[
    str | None, typer.Argument(metavar="VALUE|-", help="Text, or - for standard input.")
]
FileOption = Annotated[
    Path | None, typer.Option("--file", metavar="F", help="Take the value from a file.")
]
DeadlineOption = Annotated[
    float, typer.Option("--deadline", metavar="SECONDS", help="Give up after this time.")
]
DEADLINE_S = 10.0


class NoValueError(SwellError):
    """A key that holds nothing."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no value under {key}")


@app.command()
def put(
    key: KeyArgument,
    value: ValueArgument = None,
    file: FileOption = None,
    node: NodeOption = "",
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    deadline_s: DeadlineOption = DEADLINE_S,
    json: JsonOption = False,
) -> None:
    """Insert or replace a value."""
    data = _value(value, file)
    target = find_target(dir, connect, cluster, node)
    _run(target, key, deadline_s, lambda dht: dht.put(key, data))
    _say(json, {"key": key, "bytes": len(data)}, f"put {len(data)} bytes under {key}")


@app.command()
def get(
    key: KeyArgument,
    stale: Annotated[
        bool, typer.Option("--stale", help="Allow an answer that may be behind.")
    ] = False,
    node: NodeOption = "",
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    deadline_s: DeadlineOption = DEADLINE_S,
    json: JsonOption = False,
) -> None:
    """Write the value of a key to standard output; exit code 1 if there is none."""
    target = find_target(dir, connect, cluster, node)
    reading = _run(target, key, deadline_s, lambda dht: dht.read(key, stale=stale))
    if json:
        print_json({"key": key, **_as_json(reading.value), "stale": reading.stale})
    elif reading.value is not None:
        _write(reading.value)
    if reading.value is None:
        raise NoValueError(key)


@app.command()
def contains(
    key: KeyArgument,
    node: NodeOption = "",
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    deadline_s: DeadlineOption = DEADLINE_S,
    json: JsonOption = False,
) -> None:
    """Say whether a key has a value."""
    target = find_target(dir, connect, cluster, node)
    there = _run(target, key, deadline_s, lambda dht: dht.contains(key))
    _say(json, {"key": key, "contains": there}, "yes" if there else "no")


@app.command()
def remove(
    key: KeyArgument,
    condition: Annotated[
        str | None, typer.Option("--if", metavar="VALUE", help="Only if this is its value.")
    ] = None,
    node: NodeOption = "",
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    deadline_s: DeadlineOption = DEADLINE_S,
    json: JsonOption = False,
) -> None:
    """Remove a key, always or only if it has a given value."""
    target = find_target(dir, connect, cluster, node)
    expected = None if condition is None else os.fsencode(condition)
    done = _run(target, key, deadline_s, lambda dht: dht.remove(key, expected))
    why = "no value" if condition is None else "another value or none"
    _say(json, {"key": key, "removed": done}, f"removed {key}" if done else f"{why} under {key}")


@app.command()
def put_if_absent(
    key: KeyArgument,
    value: ValueArgument = None,
    file: FileOption = None,
    node: NodeOption = "",
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    deadline_s: DeadlineOption = DEADLINE_S,
    json: JsonOption = False,
) -> None:
    """Insert a value unless the key has one."""
    data = _value(value, file)
    target = find_target(dir, connect, cluster, node)
    done = _run(target, key, deadline_s, lambda dht: dht.put_if_absent(key, data))
    text = f"put {len(data)} bytes under {key}" if done else f"there is a value under {key} already"
    _say(json, {"key": key, "put": done}, text)


@app.command()
def replace(
    key: KeyArgument,
    value: ValueArgument = None,
    file: FileOption = None,
    condition: Annotated[
        str | None, typer.Option("--if", metavar="OLD", help="Only if this is its value.")
    ] = None,
    node: NodeOption = "",
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    deadline_s: DeadlineOption = DEADLINE_S,
    json: JsonOption = False,
) -> None:
    """Replace the value of a key that has one, or only if it has a given one."""
    data = _value(value, file)
    target = find_target(dir, connect, cluster, node)
    if condition is not None:
        old = os.fsencode(condition)
        done = _run(target, key, deadline_s, lambda dht: dht.replace_if(key, old, data))
        text = f"replaced {key}" if done else f"another value or none under {key}"
        _say(json, {"key": key, "replaced": done}, text)
        return
    before = _run(target, key, deadline_s, lambda dht: dht.replace(key, data))
    done = before is not None
    result = {"key": key, "replaced": done, **_as_json(before)}
    _say(json, result, f"replaced {key}" if done else f"no value under {key}")


@app.command()
def put_and_retrieve(
    key: KeyArgument,
    value: ValueArgument = None,
    file: FileOption = None,
    node: NodeOption = "",
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    deadline_s: DeadlineOption = DEADLINE_S,
    json: JsonOption = False,
) -> None:
    """Insert or replace a value and write the one before it to standard output."""
    data = _value(value, file)
    target = find_target(dir, connect, cluster, node)
    before = _run(target, key, deadline_s, lambda dht: dht.put_and_retrieve(key, data))
    if json:
        print_json({"key": key, **_as_json(before)})
    elif before is not None:
        _write(before)
    else:
        print(f"there was no value under {key}", file=sys.stderr)


def _run(target: Target, key: str, deadline_s: float, what: Callable[[Dht], Awaitable[T]]) -> T:
    """One operation on a connection of its own."""
    encode_key(key)  # a bad key is told before any node is asked

    async def once() -> T:
        connection = Connection(target.addresses, target.cluster, target.tls, deadline_s)
        async with connection as client:
            return await what(client.dht())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(once())


def _value(text: str | None, file: Path | None) -> bytes:
    """The value that the command line names, one way or another."""
    if (text is None) == (file is None):
        raise ConfigurationError("give one value: VALUE, - for standard input, or --file F")
    if file is not None:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"cannot read {file}: {error.strerror}") from None
    elif text == "-":
        data = sys.stdin.buffer.read()
    else:
        data = os.fsencode(text or "")
    check_value(data)
    return data


def _write(value: bytes) -> None:
    write(value + b"\n" if sys.stdout.isatty() else value)


def _as_json(value: bytes | None) -> dict[str, Any]:
    """A value as text if it is text, else in base64."""
    if value is None:
        return {"value": None}
    try:
        return {"value": value.decode()}
    except UnicodeDecodeError:
        return {"value": base64.b64encode(value).decode(), "encoding": "base64"}


def _say(json: bool, result: dict[str, Any], sentence: str) -> None:
    if json:
        print_json(result)
    else:
        print(sentence)
