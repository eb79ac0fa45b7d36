"""`swell config edit`: the present version in the user's editor, published if nobody was faster.

What the user wrote is never lost: whenever it is not published, its file stays and is named.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import typer

from swell.cli.config_arguments import (
    WAIT_DEADLINE,
    AuthorOption,
    DeadlineOption,
    Place,
    PlaceArgument,
    Value,
    find_author,
    parse_place,
    parse_time_s,
    read_file,
)
from swell.cli.config_errors import NOTHING_CHANGED, check_value
from swell.cli.config_publishing import Display, Level, WaitOption, Wish, publish, run
from swell.cli.target import (
    DEFAULT_DIR,
    ClusterOption,
    ConnectOption,
    DirOption,
    JsonOption,
    find_target,
)
from swell.client.configs import Configs
from swell.client.connection import Connection
from swell.client.values import ABSENT, Publication
from swell.config.edits import Whole
from swell.errors import ConfigurationError, SwellError

EDITOR = "vi"
"""Where neither VISUAL nor EDITOR is set."""


def edit(
    place: PlaceArgument,
    author: AuthorOption = None,
    wait: WaitOption = Level.STORED,
    deadline: DeadlineOption = WAIT_DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Edit a configuration with $EDITOR.

    It is published only if nobody has changed it meanwhile.

    Example: EDITOR=nano swell config edit shop/limits.json
    """
    one, target, who = parse_place(place), find_target(dir, connect, cluster), find_author(author)
    deadline_s = parse_time_s(deadline)

    async def read(client: Connection) -> tuple[int | None, bytes, bytes]:
        value = await client.configs(one.application).get(one.name)
        if value is None or value.deleted:
            return None, ABSENT, b""
        return value.version, value.id, await value.bytes()

    version, id, old = run(target, deadline_s, read)
    file = Path(tempfile.mkdtemp(prefix="swell-")) / Path(one.name).name
    file.write_bytes(old)
    try:
        data = _edited(one, file)
        if data == old:
            _discard(file)
            print(f"{one} was not changed", file=sys.stderr)
            return

        async def make(configs: Configs, display: Display) -> Sequence[Publication]:
            made = await configs.publish(
                [Whole(one.name, data, id)], author=who, progress=display.show_upload
            )
            _discard(file)
            return made

        publish(target, one.application, make, Wish(wait, deadline_s, json, version))
    except (SwellError, KeyboardInterrupt, typer.Exit) as error:
        if file.exists():
            _keep(one, file, error)
        raise


def _edited(place: Place, file: Path) -> bytes:
    """What the user made of the file; asked again, at a terminal, while it is not valid."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or EDITOR
    while True:
        try:
            words = [*shlex.split(command), str(file)]
            code = subprocess.run(words, check=False).returncode
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"cannot run the editor {command!r} ({error}): set EDITOR"
            ) from None
        if code:
            raise ConfigurationError(f"the editor {command!r} ended with {code}: {NOTHING_CHANGED}")
        value = Value(read_file(file), file)
        try:
            check_value(place, value)
        except SwellError as error:
            if not sys.stdin.isatty():
                raise
            typer.secho("\n".join((str(error), *error.__notes__)), fg=typer.colors.RED, err=True)
            if not typer.confirm("Edit again?", default=True, err=True):
                raise
        else:
            return value.data


def _keep(place: Place, file: Path, error: BaseException) -> None:
    path = shlex.quote(str(file))
    sentence = f"your text is in {path}: compare it with swell config diff {place} --file {path}"
    if isinstance(error, SwellError):
        error.add_note(sentence)
    else:
        print(sentence, file=sys.stderr)


def _discard(file: Path) -> None:
    shutil.rmtree(file.parent, ignore_errors=True)
