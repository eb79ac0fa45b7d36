"""`swell config watch`: every version of a configuration as it comes, with what changed.

A watch is a container of the application with a name of its own: the status shows it while it
runs. It leaves when it ends, so that nobody waits for it.
"""

from __future__ import annotations

import asyncio
import json as jsonlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import uvloop

from swell.cli.config_arguments import (
    DEADLINE,
    DeadlineOption,
    Place,
    PlaceArgument,
    parse_place,
    parse_time_s,
)
from swell.cli.config_diff import print_diff
from swell.cli.config_words import id_words, readable, size_words
from swell.cli.tables import write
from swell.cli.target import (
    DEFAULT_DIR,
    ClusterOption,
    ConnectOption,
    DirOption,
    JsonOption,
    Target,
    find_target,
)
from swell.client.connection import Connection
from swell.client.documents import Document
from swell.client.openings import Opening, default_name
from swell.config.unified import unified
from swell.ids import NAME_LENGTH_MAX

NOTHING = ("@watch",)
"""What a watch is interested in besides what it watches: a name that nothing has. What a container
is connected for stays listed for a while when it has gone; what it watches does not."""


class Story:
    """What is told of one configuration: each version against the one before it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._last: tuple[int, bytes] | None = None

    def tell(self, document: Document) -> tuple[str, Iterator[str]]:
        """A headline, and the lines of the difference; none for what was there at first."""
        data = b"" if document.deleted else document.bytes()
        last, self._last = self._last, (document.version, data)
        state = "deleted" if document.deleted else size_words(len(data))
        headline = f"{readable(str(self.place))} version {document.version}"
        headline += f" ({id_words(document.id)}), {state}, step {document.step}"
        if last is None:
            return headline, iter(())
        old, new = (f"{self.place} version {number}" for number in (last[0], document.version))
        return headline, unified(last[1], data, old, new)

    def tell_json(self, document: Document) -> dict[str, Any]:
        _, lines = self.tell(document)
        return {
            "application": self.place.application,
            "name": self.place.name,
            "version": document.version,
            "id": document.id.hex(),
            "step": document.step,
            "bytes": len(document),
            "deleted": document.deleted,
            "lines": [*lines],
        }


def watch(
    place: PlaceArgument,
    deadline: DeadlineOption = DEADLINE,
    dir: DirOption = DEFAULT_DIR,
    connect: ConnectOption = "",
    cluster: ClusterOption = "",
    json: JsonOption = False,
) -> None:
    """Print every version as it comes, with what changed.

    Ctrl-C ends it. With --json there is one line for each version.

    Example: swell config watch shop/limits.json
    """
    one, target = parse_place(place), find_target(dir, connect, cluster)
    deadline_s = parse_time_s(deadline)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_follow(target, one, deadline_s, json))
        except KeyboardInterrupt:
            print("stopped watching", file=sys.stderr)


async def _follow(target: Target, place: Place, deadline_s: float, json: bool) -> None:
    opening = Opening(
        application=place.application,
        name=f"watch-{default_name()}"[:NAME_LENGTH_MAX],
        site="",
        interest=NOTHING,
        snapshot=None,
        listen=None,
    )
    connection = Connection(
        target.addresses, target.cluster, target.tls, deadline_s, opening=opening
    )
    story = Story(place)
    async with connection as client:
        present = await client.configs(place.application).get(place.name)
        if present is None or present.deleted:
            print(f"{readable(str(place))} does not exist yet: waiting for it", file=sys.stderr)
        async for update in client.watch(place.name):
            if json:
                line = jsonlib.dumps(story.tell_json(update.document), ensure_ascii=False)
                write(f"{line}\n".encode(errors="surrogateescape"))
                continue
            headline, lines = story.tell(update.document)
            print(f"{time.strftime('%H:%M:%S')} {headline}", flush=True)
            print_diff(lines)
