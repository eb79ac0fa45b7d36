"""How services and their instances look on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from swell.cli.config_tables import table_of
from swell.cli.config_words import readable, span_words
from swell.client.services import Listed
from swell.services.instances import Instance, Instances


def services_table(lists: Mapping[str, Instances]) -> Table:
    table = table_of("Services", "service", "instances>", "healthy>", "state")
    for name, found in lists.items():
        state = Text("protected", "yellow") if found.protected else Text("")
        table.add_row(_text(name), str(len(found)), str(found.healthy), state)
    return table


def instances_table(name: str, found: Instances, now_s: float) -> Table:
    title = f"{escape(readable(name))}: {found.healthy} of {len(found)} healthy"
    if found.protected:
        title += ", protected: all may be used"
    table = table_of(title, "id", "address", "weight>", "state", "since>", "check", "metadata~")
    for one in found:
        table.add_row(
            _text(one.id),
            _text(f"{one.host}:{one.port}"),
            f"{one.weight:g}",
            _state(one),
            span_words(max(0.0, now_s - one.since)),
            _text(one.check),
            _text(_metadata(one)),
        )
    return table


def _state(one: Instance) -> Text:
    return Text("healthy", "green") if one.healthy else Text("unhealthy", "red")


def _metadata(one: Instance) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(one.metadata.items()))


def _text(text: str) -> Text:
    """As it is: what people have written is no markup."""
    return Text(readable(text))


def words_of(listed: Listed) -> Iterator[str]:
    """What a change says, one line each."""
    for sign, ones in (("+", listed.added), ("-", listed.removed), ("~", listed.changed)):
        for one in ones:
            state = "healthy" if one.healthy else "unhealthy"
            facts = f"{sign} {one.id} {one.host}:{one.port} weight {one.weight:g} {state}"
            yield readable(f"{facts} {_metadata(one)}".rstrip())
    count = f"{listed.instances.healthy} of {len(listed.instances)} healthy"
    yield f"= {count}{', protected' if listed.instances.protected else ''}"
