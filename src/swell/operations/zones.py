"""The whole overlay as a graph: one question to each zone, put together.

Every member knows its zone's cliques and links, since all publish theirs as attributes; so one
answer per zone tells everything. A link counts when both of its ends publish it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

import msgspec

from swell.errors import SwellError
from swell.operations.call import Call, Result
from swell.operations.messages import ZONE_TOPIC, MemberReport, ZoneAnswer
from swell.overlay.membership_messages import State
from swell.overlay.overlay import CLIQUE, Overlay
from swell.overlay.requests import Answer

ZONE_ANSWER_S = 1.5
TRIES = 2
"""A question may be lost with the link it travelled on; the second one takes another way."""

CLIQUE_LINK = "clique"
ZONE_LINK = "inter-zone"
ONE_SIDED = "one-sided"

_encode = msgspec.msgpack.Encoder().encode
_decode_answer = msgspec.msgpack.Decoder(ZoneAnswer).decode
_decode_ids = msgspec.msgpack.Decoder(tuple[int, ...]).decode


def zone_answer(overlay: Overlay) -> ZoneAnswer:
    """This node's zone as this node knows it."""
    members = overlay.members
    reports = []
    for contact, state in members.states():
        if state > State.SUSPECT:
            continue
        if contact.id == overlay.me.id:
            clique = tuple(sorted(overlay.clique.up))
        else:
            clique = _ids(members.attribute(contact.id, CLIQUE))
        links = tuple(overlay.zonelinks.links_of(contact.id))
        reports.append(MemberReport(contact, state == State.SUSPECT, clique, links))
    return ZoneAnswer(overlay.me.zone, members.alive()[0].id, tuple(reports))


def _ids(value: bytes | None) -> tuple[int, ...]:
    try:
        return _decode_ids(value) if value else ()
    except msgspec.DecodeError:
        return ()


def answer_questions(overlay: Overlay) -> None:
    """Let other nodes ask about this zone."""
    overlay.requests.answer(ZONE_TOPIC, lambda routed, body: _encode(zone_answer(overlay)))


class Gathering:
    """Asks every zone for its answer, then calls `ready(answers, unreachable zones)` once."""

    def __init__(
        self, call: Call, overlay: Overlay, ready: Callable[[list[ZoneAnswer], list[int]], None]
    ) -> None:
        self._call = call
        self._overlay = overlay
        self._ready = ready
        self._answers: dict[int, ZoneAnswer] = {overlay.me.zone: zone_answer(overlay)}
        self._tries: dict[int, int] = dict.fromkeys(overlay.other_zones(), 0)
        self._unreachable: list[int] = []

    def start(self) -> None:
        for zone in list(self._tries):
            self._ask(zone)
        self._check()

    def _ask(self, zone: int) -> None:
        self._tries[zone] += 1
        timeout_s = min(ZONE_ANSWER_S, self._call.answer_time_s() / TRIES)

        def done(answer: Answer | SwellError) -> None:
            self._on_answer(zone, answer)

        self._overlay.requests.ask(zone, 0, ZONE_TOPIC, b"", timeout_s, done)

    def _on_answer(self, zone: int, answer: Answer | SwellError) -> None:
        if isinstance(answer, SwellError):
            if self._tries[zone] < TRIES:
                self._ask(zone)
                return
            self._unreachable.append(zone)
        else:
            try:
                self._answers[zone] = _decode_answer(answer.payload)
            except msgspec.DecodeError:
                self._call.host.counters["bad-answer"] += 1
                self._unreachable.append(zone)
        del self._tries[zone]
        self._check()

    def _check(self) -> None:
        if not self._tries and not self._call.over:
            answers = [self._answers[zone] for zone in sorted(self._answers)]
            self._ready(answers, sorted(self._unreachable))


def graph(answers: Iterable[ZoneAnswer], unreachable: list[int]) -> Result:
    """The result of `overlay`: nodes, links and zones."""
    reports = {r.contact.id: r for answer in answers for r in answer.members}
    names = {node: report.contact.name for node, report in reports.items()}
    nodes = [
        {
            "name": r.contact.name,
            "id": r.contact.id,
            "site": r.contact.site,
            "rack": r.contact.rack,
            "zone": r.contact.zone,
            "epoch": r.contact.start,
            "address": str(r.contact.address),
            "state": "suspect" if r.suspect else "alive",
        }
        for _, r in sorted(reports.items())
    ]
    zones = [
        {
            "id": answer.zone,
            "site": ",".join(dict.fromkeys(r.contact.site for r in answer.members)),
            "size": len(answer.members),
            "delegate": names.get(answer.delegate, ""),
        }
        for answer in answers
    ]
    links = [*_clique_links(answers), *_zone_links(reports, names)]
    return {"nodes": nodes, "links": links, "zones": zones, "unreachable": unreachable}


def _clique_links(answers: Iterable[ZoneAnswer]) -> list[Result]:
    return [
        {"a": a.contact.name, "b": b.contact.name, "kind": CLIQUE_LINK, "zone": answer.zone}
        for answer in answers
        for a, b in combinations(answer.members, 2)
        if b.contact.id in a.clique and a.contact.id in b.clique
    ]


def _zone_links(reports: dict[int, MemberReport], names: dict[int, str]) -> list[Result]:
    """Each link once, from its smaller end; those that only one end knows are marked."""
    ends = {(node, peer): zone for node, report in reports.items() for zone, peer in report.links}
    links: list[dict[str, Any]] = []
    for node, peer in sorted(ends):
        mutual = (peer, node) in ends
        if mutual and node > peer:
            continue
        link = {
            "a": names[node],
            "b": names.get(peer, f"#{peer}"),
            "kind": ZONE_LINK,
            "zones": [reports[node].contact.zone, ends[node, peer]],
        }
        if not mutual:
            link["state"] = ONE_SIDED
        links.append(link)
    return links


def problems(overlay: Result) -> list[str]:
    """What keeps a graph from being THOR's: complete cliques, exactly one link between every two
    zones, links between zones spread evenly over each zone's nodes. Empty if nothing does."""
    found = [f"zone {zone} does not answer" for zone in overlay["unreachable"]]
    zone_of = {node["name"]: node["zone"] for node in overlay["nodes"]}
    cliques: dict[int, int] = {}
    between: dict[tuple[int, int], int] = {}
    load = dict.fromkeys(zone_of, 0)
    for link in overlay["links"]:
        if link["kind"] == CLIQUE_LINK:
            cliques[link["zone"]] = cliques.get(link["zone"], 0) + 1
        elif link.get("state") == ONE_SIDED:
            found.append(f"only {link['a']} knows of its link to {link['b']}")
        else:
            a, b = sorted(link["zones"])
            between[a, b] = between.get((a, b), 0) + 1
            for end in (link["a"], link["b"]):
                load[end] += 1
    for zone in overlay["zones"]:
        number, size = zone["id"], zone["size"]
        missing = size * (size - 1) // 2 - cliques.get(number, 0)
        if missing:
            found.append(f"zone {number}: {missing} clique links are missing")
        loads = [load[name] for name in zone_of if zone_of[name] == number]
        if max(loads, default=0) - min(loads, default=0) > 1:
            found.append(f"zone {number}: links between zones are uneven, {sorted(loads)}")
    for a, b in combinations(sorted(zone["id"] for zone in overlay["zones"]), 2):
        if between.get((a, b), 0) != 1:
            found.append(f"zones {a} and {b} have {between.get((a, b), 0)} links, not one")
    return found
