"""Generated event logs with planted faults of every kind, from one seed each.

A log is made by a small model of a cluster: nodes store versions, containers subscribe, apply and
acknowledge; processes of a board write and notify. Then faults are planted into the rows. Times are
in microseconds; `frame_of` turns rows of any number of runs into one Spark frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from swell.events.arrow import SCHEMA
from swell.events.schema import NAMES
from swell.ids import life_of
from swell.pipeline.schema import EVENTS

Row = dict[str, Any]

BEGIN_US = 1_794_355_200_000_000
S = 1_000_000
MS = 1_000
FILES = 2
"""Of a frame: each is read by one task."""
NAMES_OF = ("db.json", "db.pool", "ui", "@list")
PATTERNS = ("", "db.*", "ui", "db.json", "@list", "*")
INTERESTS = (*((pattern,) for pattern in PATTERNS), ("@list", "ui"), ("db.*", "ui"))


Subscription = tuple[str, tuple[str, ...]]
"""Application, and patterns in order."""


class GeneratedLog:
    """One run. `rows` are complete once `finish` was called."""

    def __init__(self, run: str, seed: int) -> None:
        self.run = run
        self.rng = np.random.default_rng(seed)
        self.rows: list[Row] = []
        self.skews_us: dict[str, int] = {}
        self.boots_us: dict[str, int] = {}
        self.starts: dict[str, int] = {}
        self.roles: dict[str, str] = {}
        self.subscribed: dict[str, Subscription] = {}
        """By container."""
        self.wishes: dict[str, Subscription] = {}
        """The last of each container."""
        self.acked: dict[tuple[str, Subscription], int] = {}
        self.applied: dict[str, int] = {}
        """When each container applied something last: it takes one after the other."""
        self.last: dict[tuple[str, str, str], int] = {}
        """Version that a container was brought last, by application and name."""
        self.heads: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.steps: dict[str, int] = {}

    def begin(self, node: str, role: str, t: int, skew_us: int = 0, machine: int = 0) -> None:
        """A process starts, for the first time or again."""
        self.roles[node] = role
        self.skews_us.setdefault(node, skew_us)
        boot_us = BEGIN_US - 3600 * S - machine * 977 * S
        self.boots_us.setdefault(node, boot_us)
        none_yet = life_of(BEGIN_US // S, 0) if role == "node" and machine % 2 else 0
        self.starts[node] = self.starts.get(node, none_yet) + 1
        self.emit("start", node, t)

    def emit(self, kind: str, node: str, t: int, **fields: Any) -> Row:
        """A row of a process at a true time."""
        row: Row = dict.fromkeys(NAMES)
        row |= {
            "schema": 1,
            "run": self.run,
            "kind": kind,
            "at": t + self.skews_us[node],
            "mono_us": t - self.boots_us[node],
            "node": node,
            "role": self.roles[node],
            "start": self.starts[node],
            "t": t,
        }
        row |= fields
        if row["first"] is None:
            row["first"] = row["sequence"]
        self.rows.append(row)
        return row

    def number(self) -> None:
        """Give every row its number, by its true time."""
        counts: dict[tuple[str, int], int] = {}
        self.rows.sort(key=lambda row: row["t"])
        for row in self.rows:
            life = (row["node"], row["start"])
            counts[life] = row["row"] = counts.get(life, 0) + 1

    def of(self, *kinds: str) -> list[Row]:
        return [row for row in self.rows if row["kind"] in kinds]

    def pick(self, rows: Sequence[Row]) -> Row | None:
        return rows[int(self.rng.integers(len(rows)))] if rows else None

    def pick_of(self, *kinds: str) -> Row | None:
        return self.pick(self.of(*kinds))


def digest_of(*parts: Any) -> bytes:
    return blake2b(repr(parts).encode(), digest_size=20).digest()


def make(run: str, seed: int, faults: int, skews: bool = True) -> GeneratedLog:
    """A log of a sound run, with that many faults planted into it; `skews`: clocks may be off."""
    log = GeneratedLog(run, seed)
    skewed = bool(log.rng.random() < 0.3) and skews
    model_configurations(log, skewed)
    model_board(log)
    log.number()
    for planter in log.rng.choice(len(PLANTERS), faults):
        PLANTERS[int(planter)](log)
    return log


def cut(run: str, seed: int, share: float) -> GeneratedLog:
    """A log of a sound run whose oldest files were removed: that share of the rows, and all of the
    board, of whose rules a log must have the beginning."""
    log = make(run, seed, 0)
    kept = [
        row for row in log.rows if log.roles[row["node"]] != "client" and row["kind"] != "traffic"
    ]
    log.rows = kept[int(len(kept) * share) :]
    return log


def moved(run: str, arrives: bool) -> GeneratedLog:
    """The old primary's clock is ahead: its row of the end seems to come after the new one's of the
    beginning. One container has left before. `arrives`: so does what is stored after that."""
    log, t = GeneratedLog(run, 0), BEGIN_US
    log.begin("n0", "node", t, skew_us=20 * MS, machine=0)
    log.begin("n1", "node", t, machine=1)
    for number in range(2):
        log.begin(f"c{number}", "container", t, machine=2 + number)
        log.subscribed[f"c{number}"] = ("shop", ("",))
        subscribe(log, f"c{number}", "n0", 1, t + S)
    toggle(log, "c1", "n0", 1, t + 4 * S)
    move(log, "n0", "n1", 2, t + 5 * S, planned=True)
    store(log, "shop", "ui", "n1", 2, t + 10 * S, arrives)
    for node in ("c0", "n0", "n1"):
        log.emit("stop", node, t + 60 * S)
    log.number()
    return log


def off_clock(run: str, skew_us: int) -> GeneratedLog:
    """The clocks of two containers are off, by about ten minutes. `early` and `late` do not arrive;
    `lost` does, and the rows are lost: one container's disk is full, the other is killed."""
    log, t = GeneratedLog(run, 0), BEGIN_US
    log.begin("n0", "node", t, machine=0)
    for number in range(2):
        log.begin(f"c{number}", "container", t, skew_us, machine=1 + number)
        log.subscribed[f"c{number}"] = ("shop", ("",))
        subscribe(log, f"c{number}", "n0", 1, t + S)
    stores = {5: "beat", 10: "early", 607: "beat", 610: "lost", 616: "beat", 1210: "late"}
    for at_s, name in {**stores, 1250: "beat"}.items():
        if at_s == 616:
            log.emit("crash-found", "n0", t + 615 * S, peer="c1")
            del log.subscribed["c1"]
        store(log, "shop", name, "n0", 1, t + at_s * S, name in ("beat", "lost"))
    for node in ("c0", "n0"):
        log.emit("stop", node, t + 1300 * S)
    log.number()
    log.rows = [row for row in log.rows if row["name"] != "lost" or row["kind"] == "store"]
    return log


def model_configurations(log: GeneratedLog, skewed: bool) -> None:
    rng, t = log.rng, BEGIN_US
    for number in range(2):
        skew = int(rng.choice([0, 5])) * MS
        log.begin(f"n{number}", "node", t, skew, machine=number)
    primary, epoch, arrivals = "n0", 1, 4
    for number in range(arrivals):
        skew = int(rng.choice([-290, -17, 80, 300])) * S if skewed and rng.random() < 0.5 else 0
        log.begin(f"c{number}", "container", t + 1000 + number, skew, machine=number % 3)
    for _ in range(int(rng.integers(15, 45))):
        t += int(rng.integers(1, 4 * S))
        chance = rng.random()
        if chance < 0.2:
            container = f"c{rng.integers(arrivals)}"
            toggle(log, container, primary, epoch, t)
        elif chance < 0.25:
            former, primary = primary, ("n1" if primary == "n0" else "n0")
            epoch += 1
            move(log, former, primary, epoch, t, planned=bool(rng.random() < 0.7))
            t += 20 * MS
        elif chance < 0.3 and log.subscribed:
            restart(log, str(rng.choice(sorted(log.subscribed))), primary, t)
            t += 2 * S
        else:
            application = str(rng.choice(["shop", "pay"]))
            store(log, application, str(rng.choice(NAMES_OF)), primary, epoch, t)
    log.emit("traffic", "n0", t + 5 * S, name="x", rate=1.0)
    for node, role in list(log.roles.items()):
        if role != "client":
            log.emit("stop", node, t + 6 * S)


def toggle(log: GeneratedLog, container: str, primary: str, epoch: int, t: int) -> None:
    """A container subscribes or leaves. One that comes back has what it had acknowledged, or has
    nothing."""
    if container in log.subscribed:
        application, patterns = log.subscribed.pop(container)
        names = (None,) if log.rng.random() < 0.3 else patterns
        for name in names:
            log.emit("unsubscribe", primary, t, peer=container, application=application, name=name)
        return
    fresh = (
        str(log.rng.choice(["shop", "pay"])),
        INTERESTS[int(log.rng.integers(len(INTERESTS)))],
    )
    wish = log.wishes.get(container, fresh) if log.rng.random() < 0.5 else fresh
    application, patterns = log.subscribed[container] = log.wishes[container] = wish
    for again in range(int(log.rng.integers(1, 3))):
        subscribe(log, container, primary, epoch, t + again)


def subscribe(log: GeneratedLog, container: str, primary: str, epoch: int, t: int) -> None:
    """With what it has acknowledged, or with nothing."""
    wish = application, patterns = log.subscribed[container]
    step = log.acked.get((container, wish), 0) if log.rng.random() < 0.8 else 0
    fields = {"peer": container, "application": application, "epoch": epoch, "step": step}
    for pattern in patterns:
        log.emit("subscribe", primary, t, name=pattern, **fields)


def move(log: GeneratedLog, former: str, primary: str, epoch: int, t: int, planned: bool) -> None:
    """Another primary serves everybody; the one before says so only if that was planned."""
    for container, (application, patterns) in sorted(log.subscribed.items()):
        if planned:
            fields = {"peer": container, "application": application, "epoch": 0}
            for name in patterns:
                log.emit("unsubscribe", former, t, name=name, reason="moved", **fields)
        subscribe(log, container, primary, epoch, t + int(log.rng.integers(1, 10)) * MS)


def restart(log: GeneratedLog, container: str, primary: str, t: int) -> None:
    """A container dies, with or without a word, and comes back without a subscription."""
    log.subscribed.pop(container)
    if log.rng.random() < 0.5:
        log.emit("stop", container, t)
    else:
        log.emit("crash-found", primary, t + S // 2, peer=container)
    log.begin(container, log.roles[container], t + S)


def store(
    log: GeneratedLog,
    application: str,
    name: str,
    primary: str,
    epoch: int,
    t: int,
    arrives: bool = True,
) -> None:
    """The next version of a configuration."""
    log.steps[application] = log.steps.get(application, 0) + 1
    version, base = log.heads.get((application, name), (0, bytes(20)))
    made = digest_of(log.run, application, name, version + 1)
    log.heads[application, name] = (version + 1, made)
    common = {"application": application, "name": name, "epoch": epoch, "digest": made}
    common |= {"sequence": version + 1, "step": log.steps[application], "base": base}
    log.emit("store", primary, t, source="admin", **common)
    if arrives:
        deliver(log, common, primary, t)


def deliver(log: GeneratedLog, common: Row, primary: str, t: int) -> None:
    """What is stored reaches everybody who wants it; some get two versions with the second."""
    application, name, version = common["application"], common["name"], common["sequence"]
    for container, wish in sorted(log.subscribed.items()):
        wanted, patterns = wish
        if wanted != application or not any(matches(pattern, name) for pattern in patterns):
            continue
        key = (container, application, name)
        begin = max(1, log.last.get(key, version - 1) + 1)
        sent = t + int(log.rng.integers(100, 5000))
        lag = int(log.rng.integers(500, 900_000))
        applied = log.applied[container] = max(sent + lag, log.applied.get(container, 0) + 2)
        sent_at = sent + log.skews_us[primary]
        fields = {"peer": primary, "sent_at": sent_at, "first": begin}
        log.emit("apply", container, applied, **{**common, **fields})
        log.last[key] = version
        if log.rng.random() < 0.05:
            log.emit("reject", container, applied + 1, **{**common, "base": None, "reason": "no"})
        ack = {"application": application, "peer": container, "sequence": common["step"]}
        interest = ",".join(patterns) or None
        log.emit("ack", primary, applied + 20_000, name=interest, **ack)
        log.acked[container, wish] = common["step"]


def matches(pattern: str, name: str) -> bool:
    if pattern in ("", "*"):
        return not name.startswith("@")
    return name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1]))


def model_board(log: GeneratedLog) -> None:
    rng, t = log.rng, BEGIN_US + 1
    people = [f"p{number}" for number in range(3)]
    for number, person in enumerate(people):
        log.begin(person, "client", t + number, machine=number % 2)
    subscribers: dict[str, set[str]] = {"t0": set(), "t1": set()}
    view: dict[tuple[str, str], Row] = {}
    counts = dict.fromkeys(people, 0)
    alive = list(people)
    for _ in range(int(rng.integers(8, 25))):
        t += int(rng.integers(1, 3 * S))
        person, topic = str(rng.choice(alive)), str(rng.choice(["t0", "t1"]))
        chance = rng.random()
        if chance < 0.3:
            joins = person not in subscribers[topic]
            log.emit("subscribe" if joins else "unsubscribe", person, t, name=topic)
            (subscribers[topic].add if joins else subscribers[topic].discard)(person)
        elif chance < 0.36 and len(alive) > 1:
            alive.remove(person)
            log.emit("stop", person, t)
            for watched in subscribers.values():
                watched.discard(person)
            for (name, writer), write in sorted(view.items()):
                if writer == person:
                    notify(log, subscribers, {**write, "digest": None}, t, name)
        else:
            counts[person] += 1
            value = None if rng.random() < 0.1 else digest_of(log.run, person, counts[person])
            write = {"source": person, "epoch": 1, "sequence": counts[person], "digest": value}
            log.emit("write", person, t, name=topic, **write)
            view[topic, person] = write
            notify(log, subscribers, write, t, topic)


def notify(
    log: GeneratedLog, subscribers: dict[str, set[str]], write: Row, t: int, topic: str
) -> None:
    for person in sorted(subscribers[topic]):
        log.emit("notify", person, t + int(log.rng.integers(1, 900)), name=topic, **write)


def life(row: Row) -> tuple[str, int]:
    return (row["node"], row["start"])


def remove(log: GeneratedLog, row: Row | None, traceless: bool) -> None:
    """Take a row out; without a trace: the rows behind it move up."""
    if row is None:
        return
    log.rows.remove(row)
    if traceless:
        for other in log.rows:
            if life(other) == life(row) and other["row"] > row["row"]:
                other["row"] -= 1


def append(log: GeneratedLog, row: Row | None, lag_us: int, **fields: Any) -> None:
    """A row like another one, as the next of its process."""
    if row is None:
        return
    behind = row["row"] + 1
    for other in log.rows:
        if life(other) == life(row) and other["row"] >= behind:
            other["row"] += 1
    later = {"row": behind, "at": row["at"] + lag_us, "mono_us": row["mono_us"] + lag_us}
    log.rows.append({**row, **later, **fields})


def change(column: str, value: Callable[[Row], Any], *kinds: str) -> Callable[[GeneratedLog], None]:
    def plant(log: GeneratedLog) -> None:
        row = log.pick_of(*kinds)
        if row is not None:
            row[column] = value(row)

    return plant


def plant_delay(log: GeneratedLog) -> None:
    row = log.pick_of("apply")
    if row is not None:
        row["at"] += 7 * S
        row["mono_us"] += 7 * S


def plant_older(log: GeneratedLog) -> None:
    row = log.pick([one for one in log.of("apply") if one["first"] > 1])
    if row is not None:
        append(log, row, 10, first=row["first"] - 1, sequence=row["first"] - 1, digest=None)


def plant_life(log: GeneratedLog) -> None:
    """After everything, a container starts anew with an old version; from a snapshot or not."""
    row = log.pick([one for one in log.of("apply") if one["sequence"] > 1])
    if row is not None:
        start = log.starts[row["node"]] = log.starts[row["node"]] + 1
        t = {"at": row["at"] + 500 * S, "mono_us": row["mono_us"] + 500 * S, "row": 1}
        sent_at = row["sent_at"] + 500 * S
        old = {"first": 1, "sequence": 1, "digest": None, "start": start, "sent_at": sent_at, **t}
        if log.rng.random() < 0.6:
            begun = {name: row[name] for name in ("schema", "run", "node", "role", "application")}
            log.rows.append(dict.fromkeys(row) | begun | {**t, "start": start, "kind": "start"})
            old["row"] = 2
        log.rows.append({**row, **old})


def plant_ack(log: GeneratedLog) -> None:
    row = log.pick_of("ack")
    if row is not None:
        append(log, row, 5, sequence=row["sequence"] - int(log.rng.integers(2)))


def plant_forgotten(log: GeneratedLog) -> None:
    """A container comes back with less than it had."""
    row = log.pick([one for one in log.of("subscribe") if (one["step"] or 0) > 1])
    if row is not None:
        row["step"] = int(log.rng.integers(1, row["step"]))


def plant_kill(log: GeneratedLog) -> None:
    """A process is killed: its last rows are lost, and somebody finds out."""
    row = log.pick_of("store", "apply", "write")
    if row is None:
        return
    log.rows = [one for one in log.rows if life(one) != life(row) or one["row"] < row["row"]]
    finder = log.pick([one for one in log.of("start") if one["node"] in ("n0", "n1")])
    if finder is None or finder["node"] == row["node"]:
        return
    at = row["at"] + 2 * S
    before = [one for one in log.rows if life(one) == life(finder) and one["at"] <= at]
    last = max(before, key=lambda one: one["row"])
    crash = {"kind": "crash-found", "peer": row["node"], "application": None, "name": None}
    append(log, last, at - last["at"], **crash)


def plant_rotation(log: GeneratedLog) -> None:
    """The first files of a life are gone."""
    row = log.pick_of("store", "apply")
    if row is not None:
        log.rows = [one for one in log.rows if life(one) != life(row) or one["row"] >= row["row"]]


def plant_unrecorded(log: GeneratedLog) -> None:
    """A container wrote no events until one of its lives had ended."""
    row = log.pick_of("subscribe", "apply")
    if row is not None:
        node, start = (row["peer"], 1) if row["kind"] == "subscribe" else life(row)
        log.rows = [one for one in log.rows if one["node"] != node or one["start"] > start]


def plant_earlier(log: GeneratedLog) -> None:
    """A node had a life before the first one of the log, and so had what it stores."""
    row = log.pick_of("store")
    if row is not None:
        for one in log.rows:
            one["start"] += life(one) == life(row)
        if log.rng.random() < 0.7:
            log.rows = [one for one in log.rows if one["kind"] != "store" or one["step"] > 2]


def plant_twin(log: GeneratedLog) -> None:
    """A version is stored again, otherwise."""
    append(log, log.pick_of("store"), 50, digest=digest_of("twin"))


PLANTERS: tuple[Callable[[GeneratedLog], None], ...] = (
    lambda log: remove(log, log.pick_of("apply"), True),
    lambda log: remove(log, log.pick_of("apply"), False),
    lambda log: remove(log, log.pick_of("store"), True),
    lambda log: remove(log, log.pick_of("store"), False),
    lambda log: remove(log, log.pick_of("notify"), True),
    lambda log: remove(log, log.pick_of("write"), True),
    lambda log: remove(log, log.pick_of("write"), False),
    lambda log: remove(log, log.pick_of("subscribe"), True),
    lambda log: append(log, log.pick_of("apply"), 10),
    lambda log: append(log, log.pick_of("notify"), 10),
    lambda log: append(log, log.pick_of("notify"), 10, sequence=1),
    change("digest", lambda row: digest_of("other"), "apply"),
    change("digest", lambda row: digest_of("other"), "notify"),
    change("digest", lambda row: None, "notify"),
    change("digest", lambda row: digest_of("alive"), "notify"),
    change("sequence", lambda row: row["sequence"] + 100, "apply", "notify"),
    change("base", lambda row: digest_of("base"), "store"),
    change("step", lambda row: row["step"] + 50, "store"),
    change("step", lambda row: 1, "store"),
    change("mono_us", lambda row: row["mono_us"] - 5 * S, "notify"),
    plant_delay,
    plant_older,
    plant_life,
    plant_ack,
    plant_forgotten,
    plant_kill,
    plant_rotation,
    plant_unrecorded,
    plant_earlier,
    plant_twin,
)


def parts_of(rows: Sequence[Mapping[str, Any]], parts: int) -> Iterator[pa.Table]:
    """Tables with the columns, too, that in a log are in the path of a file."""
    kind = pa.field("kind", pa.string(), nullable=False)
    table = pa.Table.from_pylist(rows, schema=SCHEMA.append(kind))
    table = table.append_column("date", pc.cast(table["at"], pa.date32()))
    for part in range(parts):
        begin, end = (len(table) * cut // parts for cut in (part, part + 1))
        yield table.slice(begin, end - begin)


def frame_of(spark: SparkSession, logs: Sequence[GeneratedLog], path: Path) -> DataFrame:
    """All rows of these logs in one frame, of files that are written into a new folder there: rows
    that are handed over are held by Java, and planned with again and again."""
    folder = Path(mkdtemp(dir=path))
    for number, part in enumerate(parts_of([row for log in logs for row in log.rows], FILES)):
        pq.write_table(part, folder / f"{number}.parquet")
    return spark.read.parquet(str(folder)).select(*EVENTS.fieldNames())
