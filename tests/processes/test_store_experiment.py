"""`store` on a small scale: real servers of both systems, real load, a real kill."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from swell.lab import etcd_cluster
from swell.lab.etcd_client import EtcdClient, EtcdLibraryClient
from swell.lab.etcd_cluster import EtcdCluster
from swell.lab.server_process import ServerError, ServerProcess
from swell.lab.store_client import SwellClient
from swell.lab.store_cluster import SwellCluster
from swell.lab.store_load import LoadProcess
from swell.lab.store_trials import OPERATIONS, Plan, System, recovery
from swell.lab.store_worker import KEYS, VALUE_BYTES, ClientSpec, Fill

TINY = Plan(rounds=1, warm_up_s=0.1, seconds=0.4, before_kill_s=0.3, after_kill_s=8.0)


def check(system: System) -> None:
    system.load.fill(Fill(KEYS, VALUE_BYTES, 64), 60.0)
    for operation in OPERATIONS:
        found = system.measure(operation, 16, TINY)
        assert found.rate_per_s > 0
        assert found.failures == found.wrong == 0
        assert found.client_cpu > 0
        assert min(found.server_cpu) > 0


def check_recovery(system: System, seconds_max: float) -> None:
    row = recovery(system, TINY)
    assert 0 < row["longest_put_s"] < seconds_max
    assert 0 < row["restored_s"] < seconds_max


@pytest.mark.slow
def test_our_store_serves_the_load_and_recovers(tmp_path: Path) -> None:
    with (
        SwellCluster(tmp_path) as cluster,
        LoadProcess(ClientSpec(SwellClient, cluster.addresses(), cluster.cluster)) as load,
    ):
        system = System("swell", cluster, load)
        check(system)
        check_recovery(system, 8.0)


@pytest.mark.slow
@pytest.mark.skipif(not etcd_cluster.is_installed(), reason=etcd_cluster.ABSENT)
def test_etcd_serves_the_same_load_and_recovers(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path) as cluster:
        assert cluster.version.startswith("3.")
        with LoadProcess(ClientSpec(EtcdLibraryClient, cluster.addresses(), uvloop=False)) as load:
            check(System("etcd-grpcio", cluster, load))
        with LoadProcess(ClientSpec(EtcdClient, cluster.addresses())) as load:
            system = System("etcd", cluster, load)
            check(system)
            check_recovery(system, 8.0)


def test_a_server_that_ends_early_is_told_with_its_last_words(tmp_path: Path) -> None:
    words = ["sh", "-c", "echo first; echo no such option; exit 3"]
    process = ServerProcess("toy", words, tmp_path / "log", {})
    while process.running:
        time.sleep(0.01)
    with pytest.raises(ServerError, match="toy has ended: no such option"):
        process.check()
