"""The rules of `docs/protocols/audit.md` in plain Python, as slow and plain as they are written.

Takes the rows of one run as dictionaries; gives findings (verdict, application, name, who, first,
last, node, start, row, excused). Shares no code with the pipeline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Row = dict[str, Any]
INFINITE = float("inf")


class Finding(NamedTuple):
    verdict: str
    application: str | None
    name: str | None
    who: str | None
    first: int | None
    last: int | None
    node: str
    start: int
    row: int
    excused: bool = False


class Rules(NamedTuple):
    sla_us: int = 3_000_000
    horizon_us: float = INFINITE
    settle_us: int = 10_000_000
    tail_us: int = 0
    clock_bound_us: int = 60_000_000
    same_machine_us: int = 100_000
    complete: bool = True


class Oracle:
    def __init__(self, rows: Iterable[Row], rules: Rules) -> None:
        self.rows = sorted(rows, key=across)
        self.rules = rules
        self.found: list[Finding] = []
        of_nodes = [row["at"] for row in self.rows if row["role"] == "node"]
        everything = of_nodes or [row["at"] for row in self.rows]
        self.end = max(everything, default=0) - rules.tail_us
        self.losses = self.find_losses()
        self.node_losses = [
            loss for (_, role), losses in self.losses.items() if role == "node" for loss in losses
        ]
        self.stored = self.find_stored()

    def judge(self) -> list[Finding]:
        self.judge_deliveries()
        self.judge_content()
        self.judge_order()
        self.judge_acks()
        self.judge_lost_acks()
        self.judge_chains()
        self.judge_boards()
        return self.found

    def of(self, *kinds: str, board: bool = False) -> list[Row]:
        return [
            row
            for row in self.rows
            if row["kind"] in kinds and (row["application"] is None) == board
        ]

    def add(
        self,
        verdict: str,
        row: Row,
        who: str | None,
        first: int,
        last: int,
        excused: bool = False,
        name: bool = True,
    ) -> None:
        place = (row["node"], row["start"], row["row"])
        about = (row["application"], row["name"] if name else None)
        self.found.append(Finding(verdict, *about, who, first, last, *place, excused))

    def find_losses(self) -> dict[tuple[str, str], list[tuple[float, float]]]:
        lives: dict[tuple[str, int], list[Row]] = defaultdict(list)
        for row in self.rows:
            lives[row["node"], row["start"]].append(row)
        found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for (node, start), rows in lives.items():
            rows.sort(key=lambda row: row["row"])
            key = (node, rows[0]["role"])
            offset = self.offset(lambda one, node=node: one["node"] == node)
            number, at = 0, -INFINITE
            for row in rows:
                if row["row"] > number + 1:
                    found[key].append((at, row["at"] - offset))
                number, at = row["row"], row["at"] - offset
            if any(row["kind"] == "stop" and subject(row) == node for row in rows):
                continue
            last = max(row["at"] for row in rows) - offset
            later = [one for one in lives if one[0] == node and one[1] > start]
            begins = [min(row["at"] for row in lives[min(later)]) - offset] if later else []
            crashes = [
                row["at"]
                for row in self.rows
                if row["kind"] == "crash-found"
                and subject(row) == node
                and row["at"] >= last - 1_000_000
                and (not begins or row["at"] <= begins[0])
            ]
            if crashes or begins:
                found[key].append((last, max(last, min(crashes + begins))))
        self.find_lost_lives(lives, found)
        return found

    def find_lost_lives(
        self,
        lives: dict[tuple[str, int], list[Row]],
        found: dict[tuple[str, str], list[tuple[float, float]]],
    ) -> None:
        """Of nodes by their numbers, of containers by what they subscribed to meanwhile."""
        subscribed = {subject(row) for row in self.of("subscribe")}
        for node in sorted({node for node, _ in lives} | subscribed):
            starts = sorted(start for name, start in lives if name == node)
            rows = [lives[node, start] for start in starts]
            offset = self.offset(lambda one, node=node: one["node"] == node)
            ends = [-INFINITE, *(max(row["at"] for row in one) for one in rows)]
            begins = [*(min(row["at"] for row in one) for one in rows), INFINITE]
            if rows and rows[0][0]["role"] == "node":
                none_yet = starts[0] // 10**6 * 10**6  # of its data directory
                numbered = zip(starts, [none_yet, *starts], ends, begins, strict=False)
                found[node, "node"] += [
                    (end, begin) for start, before, end, begin in numbered if start > before + 1
                ]
            for number, (end, begin) in enumerate(zip(ends, begins, strict=True)):
                last = rows[-1] if number and number == len(rows) else None
                if last and not any(r["kind"] == "stop" and subject(r) == node for r in last):
                    continue
                window = (end - offset, begin - offset)
                times = [row["at"] for row in self.of("subscribe") if subject(row) == node]
                if any(window[0] < at < window[1] for at in times):
                    found[node, "container"].append(window)

    def find_stored(self) -> dict[tuple[str, str], dict[int, list[Row]]]:
        stored: dict[tuple[str, str], dict[int, list[Row]]] = defaultdict(dict)
        for row in self.of("store"):
            stored[configuration(row)].setdefault(row["sequence"], []).append(row)
        return stored

    def offset(self, where: Callable[[Row], bool]) -> int:
        differences = [
            row["at"] - row["sent_at"]
            for row in self.of("apply")
            if row["sent_at"] is not None and where(row)
        ]
        fastest = min(differences, default=0)
        return fastest if fastest < 0 or fastest > self.rules.clock_bound_us else 0

    def subscriptions(self) -> list[tuple[str, str, str, int, float]]:
        found = []
        for begin in self.of("subscribe"):
            container, application = subject(begin), begin["application"]
            pattern = plain(begin["name"] or "")
            ends: list[float] = [self.end]
            for row in self.rows:
                at = row["at"]
                if row["kind"] in ("stop", "crash-found") and subject(row) == container:
                    writer = row["node"]
                    at -= self.offset(lambda one, writer=writer: one["node"] == writer)
                elif not (
                    row["kind"] == "unsubscribe"
                    and row["application"] == application
                    and subject(row) == container
                    and (row["name"] is None or plain(row["name"]) == pattern)
                    and row["node"] == self.holder(row, container, application, pattern)
                ):
                    continue
                if (at, *across(row)[1:]) > across(begin):
                    ends.append(at)
            found.append((application, container, pattern, begin["at"], min(ends)))
        return found

    def holder(self, row: Row, container: str, application: str, pattern: str) -> str | None:
        """Who served a subscription just before a row."""
        served = [
            one["node"]
            for one in self.of("subscribe")
            if (subject(one), one["application"]) == (container, application)
            and plain(one["name"] or "") == pattern
            and across(one) < across(row)
        ]
        return served[-1] if served else None

    def judge_deliveries(self) -> None:
        subscriptions = self.subscriptions()
        containers = {one[1] for one in subscriptions}
        missing: dict[Any, list[Row]] = defaultdict(list)
        late: dict[Any, list[Row]] = defaultdict(list)
        for (application, name), versions in self.stored.items():
            for rows in versions.values():
                store = rows[0]
                for container in containers:
                    if not any(
                        one[:2] == (application, container)
                        and wanted(one[2], name)
                        and one[3] <= store["at"]
                        and store["at"] + self.rules.sla_us <= one[4]
                        for one in subscriptions
                    ):
                        continue
                    self.judge_delivery(store, container, missing, late)
        for key, stores in missing.items():
            container, excused = key[2:]
            first = min(stores, key=lambda row: row["sequence"])
            last = max(row["sequence"] for row in stores)
            self.add("missing", first, container, first["sequence"], last, excused)
        for key, stores in late.items():
            versions_late = [row["sequence"] for row in stores]
            container, excused, start, number = key[2:]
            by = {**stores[0], "node": container, "start": start, "row": number}
            self.add("late", by, container, min(versions_late), max(versions_late), excused)

    def judge_delivery(
        self, store: Row, container: str, missing: dict[Any, Any], late: dict[Any, Any]
    ) -> None:
        rows = [
            row
            for row in self.of("apply", "reject")
            if row["node"] == container and configuration(row) == configuration(store)
        ]
        rows.sort(key=in_process)
        by = next((row for row in rows if row["sequence"] >= store["sequence"]), None)
        excused = touched(
            self.losses.get((container, "container"), []),
            store["at"],
            store["at"] + self.rules.sla_us,
        )
        key = (*configuration(store), container, excused)
        took = INFINITE if by is None else self.taken(store, by)
        if by is None or took > self.rules.horizon_us:
            missing[key].append(store)
        elif took > self.rules.sla_us:
            late[(*key, by["start"], by["row"])].append(store)

    def taken(self, store: Row, by: Row) -> float:
        boot = (store["at"] - store["mono_us"]) - (by["at"] - by["mono_us"])
        if abs(boot) <= self.rules.same_machine_us:
            return by["mono_us"] - store["mono_us"]
        offset = self.offset(
            lambda one: (
                one["application"] == store["application"]
                and one["epoch"] == store["epoch"]
                and one["node"] == by["node"]
            )
        )
        return by["at"] - store["at"] - offset

    def judge_content(self) -> None:
        unknown: dict[Any, list[Row]] = defaultdict(list)
        for row in self.of("apply"):
            versions = self.stored.get(configuration(row), {})
            version = row["sequence"]
            if version in versions:
                digests = {store["digest"] for store in versions[version]}
                if row["digest"] is not None and row["digest"] not in digests:
                    self.add("wrong-content", row, row["node"], row["first"], version)
                continue
            if not self.rules.complete and not (versions and version > min(versions)):
                continue
            below = [v for v in versions if v < version]
            above = [v for v in versions if v > version]
            begin = versions[max(below)][0]["at"] if below else -INFINITE
            end = row["sent_at"] if row["sent_at"] is not None else row["at"]
            if below and above:
                end = min(end, versions[min(above)][0]["at"])
            excused = touched(self.node_losses, begin, end)
            self.add("unknown", row, row["node"], row["first"], version, excused)
            unknown[(*configuration(row), version)].append(row)
        for rows in unknown.values():
            known = [row for row in rows if row["digest"] is not None]
            for row in known[1:]:
                if row["digest"] != known[0]["digest"]:
                    args = (row["node"], row["sequence"], row["sequence"])
                    self.add("digest-conflict", row, *args)

    def judge_order(self) -> None:
        by_key: dict[Any, list[Row]] = defaultdict(list)
        for row in self.of("apply"):
            by_key[(*configuration(row), row["node"])].append(row)
        resumed = {(row["node"], row["start"], row["application"]) for row in self.of("start")}
        for rows in by_key.values():
            for row in rows:
                versions = set(range(row["first"], row["sequence"] + 1))
                before = [one for one in rows if in_process(one) < in_process(row)]
                life = [one for one in before if one["start"] == row["start"]]
                applied = {v for one in life for v in range(one["first"], one["sequence"] + 1)}
                lives = [one["sequence"] for one in before if one["start"] < row["start"]]
                top = max((one["sequence"] for one in life), default=0)
                args = (row, row["node"], row["first"], row["sequence"])
                if row["first"] <= top:
                    self.add("duplicate" if versions & applied else "out-of-order", *args)
                elif (
                    row["sequence"] < max(lives, default=0)
                    and (row["node"], row["start"], row["application"]) in resumed
                ):
                    self.add("went-back", *args)

    def judge_acks(self) -> None:
        acked: dict[Any, int] = {}
        for row in sorted(self.of("ack", "subscribe"), key=in_process):
            key = (row["node"], row["start"], row["application"], row["peer"])
            if row["kind"] == "subscribe":
                acked = {k: v for k, v in acked.items() if k[:4] != key}
                continue
            step, before = row["sequence"], acked.get((*key, row["name"]))
            if before is not None and step <= before:
                verdict = "ack-twice" if step == before else "ack-back"
                self.add(verdict, row, row["peer"], step, step)
            acked[(*key, row["name"])] = max(step, before or step)

    def judge_lost_acks(self) -> None:
        acks = self.of("ack")
        subscribed: dict[Any, list[Row]] = defaultdict(list)
        for row in self.of("subscribe"):
            moment = (row["node"], row["start"], row["mono_us"], row["peer"], row["step"])
            subscribed[(*moment, row["application"])].append(row)
        for rows in subscribed.values():
            row = min(rows, key=in_process)
            interest = ",".join(sorted({one["name"] or "" for one in rows})) or None
            acked = [
                ack["sequence"]
                for ack in acks
                if all(ack[key] == row[key] for key in ("node", "start", "application", "peer"))
                and ack["name"] == interest
                and ack["row"] < row["row"]
            ]
            step = row["step"] or 0
            if 0 < step < max(acked, default=0):
                named = {**row, "name": interest}
                self.add("ack-lost", named, row["peer"], step + 1, max(acked))

    def judge_chains(self) -> None:
        steps: dict[str, dict[int, Row]] = defaultdict(dict)
        for versions in self.stored.values():
            numbers = sorted(versions)
            for number, before in zip(numbers, [None, *numbers], strict=False):
                row = versions[number][0]
                for other in versions[number][1:]:
                    if other["digest"] != row["digest"]:
                        self.add("digest-conflict", other, None, number, number)
                self.judge_base(versions, number)
                below = versions[before][0] if before is not None else None
                self.judge_gap("version-gap", row, number, below, before)
                if below is not None and row["step"] <= below["step"]:
                    self.add("step-order", row, None, number, number)
                known = steps[row["application"]]
                if row["step"] not in known or across(row) < across(known[row["step"]]):
                    known[row["step"]] = row
        for known in steps.values():
            numbers = sorted(known)
            for number, before in zip(numbers, [None, *numbers], strict=False):
                below = known[before] if before is not None else None
                self.judge_gap("step-gap", known[number], number, below, before)

    def judge_base(self, versions: dict[int, list[Row]], number: int) -> None:
        row = versions[number][0]
        if number == 1:
            broken = row["base"] != bytes(20)
        else:
            before = versions.get(number - 1, [])
            broken = bool(before) and row["base"] not in {one["digest"] for one in before}
        if row["base"] is not None and broken:
            self.add("base-broken", row, None, number, number)

    def judge_gap(
        self, verdict: str, row: Row, number: int, below: Row | None, before: int | None
    ) -> None:
        if before is None and not self.rules.complete:
            return
        if number == (before or 0) + 1:
            return
        times = [row["at"], below["at"] if below else -INFINITE]
        excused = touched(self.node_losses, min(times), max(times))
        by_name = verdict == "version-gap"
        self.add(verdict, row, None, (before or 0) + 1, number - 1, excused, name=by_name)

    def judge_boards(self) -> None:
        writes: dict[Any, list[Row]] = defaultdict(list)
        for row in self.of("write", board=True):
            writes[row["name"], row["source"], row["epoch"], row["sequence"]].append(row)
        for row in self.of("notify", board=True):
            self.judge_entry(row, writes)
        died = self.deaths()
        lasting = self.lasting(died)
        for (node, name), begin in lasting.items():
            writers = {row["source"] for row in self.of("write", board=True)}
            for writer in sorted(writers | set(died)):
                view = [
                    row
                    for row in self.of("notify", board=True)
                    if (row["node"], row["name"], row["source"]) == (node, name, writer)
                ]
                view.sort(key=in_process)
                if died.get(writer) is None:
                    self.judge_inclusion(node, name, writer, begin, view)
                else:
                    self.judge_exclusion(writer, begin, died[writer], view)

    def judge_entry(self, row: Row, writes: dict[Any, list[Row]]) -> None:
        args = (row, row["source"], row["sequence"], row["sequence"])
        if row["sequence"] is not None:
            same = writes.get((row["name"], row["source"], row["epoch"], row["sequence"]))
            if same is None:
                lost = [self.losses.get((row["source"], role)) for role in ("node", "client")]
                self.add("integrity", *args, excused=any(lost))
            elif row["digest"] not in (None, same[0]["digest"]) or self.precedes(row, same[0]):
                self.add("integrity", *args)
            newer = [
                one
                for one in self.of("notify", board=True)
                if one["sequence"] is not None
                and in_process(one) < in_process(row)
                and all(one[key] == row[key] for key in ("node", "name", "source"))
                and (one["epoch"], one["sequence"]) > (row["epoch"], row["sequence"])
            ]
            if newer:
                self.add("order", *args)
        subscribed = False
        for one in sorted(self.rows, key=lambda one: one["row"]):
            same_life = (one["node"], one["start"]) == (row["node"], row["start"])
            if not same_life or one["row"] >= row["row"] or subject(one) != one["node"]:
                continue
            if one["kind"] in ("subscribe", "unsubscribe") and one["name"] == row["name"]:
                subscribed = one["kind"] == "subscribe"
        stopped = any(
            one["kind"] == "stop"
            and subject(one) == row["node"] == one["node"]
            and one["start"] == row["start"]
            and one["row"] < row["row"]
            for one in self.rows
        )
        if not subscribed or stopped:
            self.add("validity", *args)

    def precedes(self, notify: Row, write: Row) -> bool:
        if (notify["node"], notify["start"]) == (write["node"], write["start"]):
            return notify["row"] < write["row"]
        boot = (notify["at"] - notify["mono_us"]) - (write["at"] - write["mono_us"])
        if abs(boot) <= self.rules.same_machine_us:
            return notify["mono_us"] < write["mono_us"]
        return False

    def deaths(self) -> dict[str, int | None]:
        died: dict[str, int | None] = {}
        for row in self.rows:  # in the order of time
            if row["kind"] == "start":
                died[subject(row)] = None
            elif row["kind"] in ("stop", "crash-found") and died.get(subject(row)) is None:
                died[subject(row)] = row["at"]
        return died

    def lasting(self, died: dict[str, int | None]) -> dict[tuple[str, str], int]:
        newest: dict[str, int] = {}
        for row in self.rows:
            if row["kind"] == "start" and subject(row) == row["node"]:
                newest[row["node"]] = max(row["start"], newest.get(row["node"], 0))
        found: dict[tuple[str, str], int] = {}
        for row in sorted(self.of("subscribe", "unsubscribe", board=True), key=in_process):
            key = (row["node"], row["name"])
            if subject(row) != row["node"] or died.get(row["node"]) is not None:
                continue
            if row["kind"] == "unsubscribe":
                found.pop(key, None)
            elif row["start"] == newest.get(row["node"], row["start"]):
                found[key] = min(row["at"], found.get(key, row["at"]))
        return found

    def judge_exclusion(self, writer: str, begin: int, died: int, view: list[Row]) -> None:
        settled = died + self.rules.settle_us <= self.end and begin <= died
        if settled and view and view[-1]["digest"] is not None:
            args = (writer, view[-1]["sequence"], view[-1]["sequence"])
            self.add("exclusion", view[-1], *args)

    def judge_inclusion(
        self, node: str, name: str, writer: str, begin: int, view: list[Row]
    ) -> None:
        written = [
            row
            for row in self.of("write", board=True)
            if (row["name"], row["source"]) == (name, writer)
        ]
        due = [
            row
            for row in written
            if row["at"] >= begin and row["at"] + self.rules.settle_us <= self.end
        ]
        if not due:
            return
        write = max(due, key=number)
        read = max((number(row) for row in view if row["sequence"] is not None), default=(-1, -1))
        newest = number(write) == max(map(number, written))
        wiped = view and view[-1]["digest"] is None and write["digest"] is not None and newest
        if read < number(write) or wiped:
            self.add("inclusion", write, node, write["sequence"], write["sequence"])


def across(row: Row) -> tuple[Any, ...]:
    return (row["at"], row["node"], row["start"], row["row"])


def in_process(row: Row) -> tuple[Any, ...]:
    return (row["start"], row["row"])


def number(row: Row) -> tuple[int, int]:
    return (row["epoch"], row["sequence"])


def subject(row: Row) -> str:
    return str(row["node"] if row["peer"] is None else row["peer"])


def configuration(row: Row) -> tuple[str, str]:
    return (row["application"], row["name"])


def plain(pattern: str) -> str:
    return "" if pattern == "*" else pattern


def wanted(pattern: str, name: str) -> bool:
    if pattern == "" or pattern.endswith("*"):
        reserved = name.startswith("@") and not pattern.startswith("@")
        return name.startswith(pattern[:-1]) and not reserved
    return name == pattern


def touched(losses: list[tuple[float, float]], begin: float, end: float) -> bool:
    return any(loss[0] <= end and loss[1] >= begin for loss in losses)
