"""A cluster of real processes on this machine, kept in one directory.

Layout: `cluster.json` (who the nodes are: stays for the next start), `processes.json` (what runs;
absent when nothing does), `nodes/NAME` (data directories), `logs/`, and with TLS `authority/` and
`certificates/NAME`.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from swell.cli.hosting import NodeSpec
from swell.cli.processes import (
    POLL_S,
    Process,
    await_condition,
    is_running,
    spawn,
    start_ticks,
)
from swell.cli.target import Target
from swell.directory.messages import Voter
from swell.errors import ConfigurationError, SwellError, UnavailableError
from swell.operations.zones import problems
from swell.runtime.identity import write_durably
from swell.runtime.ports import LOOPBACK, free_ports
from swell.runtime.security import TlsMaterial, create_cluster, issue
from swell.settings import Settings
from swell.world import Address, Role

OPERATOR = "operator"
"""Name in the certificate that commands use in a local cluster with TLS."""
VOTERS = 3
REPLICAS = 3
SITES_MAX = 26
NODES_MAX = 256
STOP_S = 8.0
KILL_S = 3.0
ASK_S = 5.0


class Plan(msgspec.Struct, frozen=True):
    """What `cluster.json` says."""

    cluster: str
    sites: int
    per_process: int
    tls: bool
    nodes: tuple[NodeSpec, ...]


class LocalCluster:
    """The cluster in one directory, running or not."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.plan = plan

    # Making and finding.

    @classmethod
    def create(
        cls,
        path: Path,
        sites: int,
        nodes: int,
        *,
        per_process: int = 1,
        connections: int = 4,
        tls: bool = False,
    ) -> LocalCluster:
        """Lay out a new cluster; nothing runs yet."""
        _check_shape(sites, nodes, per_process, connections)
        path = path.absolute()
        path.mkdir(parents=True, exist_ok=True)
        (path / "logs").mkdir(exist_ok=True)
        if tls:
            cluster = create_cluster(path / "authority", "local").id
        else:
            cluster = f"local-{os.urandom(6).hex()}"
        names = [
            (chr(ord("a") + site), f"{chr(ord('a') + site)}{k + 1}", f"r{k + 1}")
            for site in range(sites)
            for k in range(nodes // sites + (site < nodes % sites))
        ]
        ports = free_ports(len(names))
        chosen = spread([site for site, _, _ in names], per_process)
        voters = tuple(Voter(names[k][1], LOOPBACK, ports[k]) for k in chosen)
        settings = Settings.local(connections).with_replicas(min(REPLICAS, nodes))
        specs = tuple(
            NodeSpec(
                name=name,
                site=site,
                rack=rack,
                data=str(path / "nodes" / name),
                host=LOOPBACK,
                port=port,
                voters=voters,
                cluster=cluster,
                certificates=str(path / "certificates" / name) if tls else "",
                settings=settings,
            )
            for (site, name, rack), port in zip(names, ports, strict=True)
        )
        if tls:
            for name in (*(spec.name for spec in specs), OPERATOR):
                role = Role.ADMIN if name == OPERATOR else Role.NODE
                issue(path / "authority", name, path / "certificates" / name, role)
        plan = Plan(cluster, sites, per_process, tls, specs)
        write_durably(path / "cluster.json", msgspec.json.encode(plan))
        return cls(path, plan)

    @classmethod
    def load(cls, path: Path) -> LocalCluster:
        path = path.absolute()
        try:
            plan = msgspec.json.decode((path / "cluster.json").read_bytes(), type=Plan)
        except FileNotFoundError:
            raise ConfigurationError(
                f"there is no local cluster in {path}: start one with `swell up`, name its "
                "directory with --dir, or a node with --connect"
            ) from None
        except (msgspec.DecodeError, OSError) as error:
            raise ConfigurationError(f"cannot read {path / 'cluster.json'}: {error}") from None
        return cls(path, plan)

    def recorded_in(self, events: str) -> LocalCluster:
        """The same, whose nodes write files of events from their next start on; empty: as it is."""
        if not events:
            return self
        directory = str(Path(events).absolute())
        nodes = tuple(
            replace(spec, settings=spec.settings.recorded_in(directory)) for spec in self.plan.nodes
        )
        return LocalCluster(self.path, replace(self.plan, nodes=nodes))

    def spec(self, name: str) -> NodeSpec:
        for spec in self.plan.nodes:
            if spec.name == name:
                return spec
        raise ConfigurationError(
            f"no node of the cluster in {self.path} is called {name}: "
            f"they are {', '.join(spec.name for spec in self.plan.nodes)}"
        )

    def target(self, node: str = "") -> Target:
        """Where to send requests: to one node, or to whichever runs."""
        tls = TlsMaterial(self.path / "certificates" / OPERATOR) if self.plan.tls else None
        if node:
            specs: Iterable[NodeSpec] = [self.spec(node)]
        else:
            running = {name for process in self.running() for name in process.nodes}
            specs = [spec for spec in self.plan.nodes if spec.name in running]
            if not running:
                raise UnavailableError(
                    f"the cluster in {self.path} does not run: start it with `swell up`"
                )
        addresses = [Address(spec.host, spec.port) for spec in specs]
        return Target(addresses, self.plan.cluster, tls)

    # Processes.

    def processes(self) -> list[Process]:
        """Those that were started and not stopped, dead ones included."""
        try:
            data = (self.path / "processes.json").read_bytes()
        except FileNotFoundError:
            return []
        return msgspec.json.decode(data, type=list[Process])

    def running(self) -> list[Process]:
        return [process for process in self.processes() if is_running(process)]

    def process_of(self, node: str) -> Process:
        for process in self.running():
            if node in process.nodes:
                return process
        raise UnavailableError(f"{self.spec(node).name} does not run")

    def start(self, groups: Sequence[Sequence[str]] | None = None) -> list[Process]:
        """Start processes in the background, by default for all nodes."""
        if groups is None:
            names = [spec.name for spec in self.plan.nodes]
            k = self.plan.per_process
            groups = [names[start : start + k] for start in range(0, len(names), k)]
        started = [self._spawn(group) for group in groups]
        self._save([*self.running(), *started])
        return started

    def _save(self, processes: Sequence[Process]) -> None:
        write_durably(self.path / "processes.json", msgspec.json.encode(processes))

    def _spawn(self, names: Sequence[str]) -> Process:
        specs = self.path / "logs" / f"{names[0]}.json"
        specs.write_bytes(msgspec.json.encode([self.spec(name) for name in names]))
        words = [sys.executable, "-m", "swell.cli.hosting", str(specs)]
        pid = spawn(words, self.path / "logs" / f"{names[0]}.out", self.log_of(names[0]))
        return Process(pid, start_ticks(pid), tuple(names))

    def log_of(self, first: str) -> Path:
        """The log of the process that hosts `first` as its first node."""
        return self.path / "logs" / f"{first}.log"

    def kill(self, node: str) -> Process:
        """kill -9 the process of a node, as a crash would."""
        process = self.process_of(node)
        os.kill(process.pid, signal.SIGKILL)
        await_condition(lambda: not is_running(process), KILL_S)
        return process

    def stop(self) -> int:
        """Stop all processes, cleanly if they let us; how many there were."""
        running = self.running()
        for process in running:
            os.kill(process.pid, signal.SIGTERM)
        if not await_condition(lambda: not any(map(is_running, running)), STOP_S):
            for process in filter(is_running, running):
                os.kill(process.pid, signal.SIGKILL)
            await_condition(lambda: not any(map(is_running, running)), KILL_S)
        (self.path / "processes.json").unlink(missing_ok=True)
        return len(running)

    def purge(self) -> None:
        """Remove everything this cluster wrote, once it is stopped."""
        for name in ("nodes", "logs", "authority", "certificates"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        (self.path / "cluster.json").unlink(missing_ok=True)
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()

    # Waiting.

    def await_whole(
        self, timeout_s: float, progress: Callable[[dict[str, Any] | None], None]
    ) -> dict[str, Any]:
        """Wait until the overlay of all running nodes is complete and the store serves; the
        overlay's graph."""
        graph: dict[str, Any] | None = None
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            self._check_started()
            graph = self.look()
            progress(graph)
            if graph is not None and self._is_whole(graph) and self._serves():
                return graph
            time.sleep(POLL_S)
        raise UnavailableError(
            f"the cluster was not complete after {timeout_s:.0f} s ({self._trouble(graph)}): "
            f"look into {self.path / 'logs'}"
        )

    def look(self) -> dict[str, Any] | None:
        """The overlay as it is now; None if nobody can tell yet."""
        try:
            return self.target().ask("overlay", ASK_S)
        except SwellError:
            return None

    def _serves(self) -> bool:
        """Has every slot of the store a primary?"""
        try:
            store = self.target().ask("status", ASK_S)["store"]
        except SwellError:
            return False
        return bool(store["slots"]) and store["served"] == store["slots"]

    def _expected(self) -> set[str]:
        return {name for process in self.running() for name in process.nodes}

    def _is_whole(self, graph: dict[str, Any]) -> bool:
        return {node["name"] for node in graph["nodes"]} == self._expected() and not problems(graph)

    def _trouble(self, graph: dict[str, Any] | None) -> str:
        if graph is None:
            return "no node answers"
        missing = sorted(self._expected() - {node["name"] for node in graph["nodes"]})
        if problems(graph) or missing:
            return "; ".join(problems(graph)[:3]) or f"missing: {', '.join(missing)}"
        return "some slots of the store have no primary"

    def _check_started(self) -> None:
        for process in self.processes():
            log = self.log_of(process.nodes[0])
            if not is_running(process) and log.exists():
                lines = log.read_text(errors="replace").strip().splitlines() or ["no log"]
                raise UnavailableError(f"{process.nodes[0]} has ended: {lines[-1]}")


def spread(sites: Sequence[str], per_process: int) -> list[int]:
    """Places of the directory's voters among the nodes: three if there are so many, in as many
    sites, then processes, as there are."""
    chosen: list[int] = []
    for _ in range(VOTERS if len(sites) >= VOTERS else 1):
        rest = (k for k in range(len(sites)) if k not in chosen)
        chosen.append(
            min(
                rest,
                key=lambda k: (
                    sum(sites[k] == sites[other] for other in chosen),
                    sum(k // per_process == other // per_process for other in chosen),
                    k,
                ),
            )
        )
    return chosen


def _check_shape(sites: int, nodes: int, per_process: int, connections: int) -> None:
    if not 1 <= sites <= SITES_MAX:
        raise ConfigurationError(f"--sites must be 1 to {SITES_MAX}")
    if not sites <= nodes <= NODES_MAX:
        raise ConfigurationError(f"--nodes must be from one per site to {NODES_MAX} in all")
    if per_process < 1:
        raise ConfigurationError("--per-process must be at least 1")
    if connections < 2:
        raise ConfigurationError("--connections must be at least 2")
