"""The directory as its nodes see it, in small simulated clusters (THR-3)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from swell.directory.messages import (
    CandidatesReply,
    CandidatesRequest,
    JoinRefused,
    JoinReply,
    JoinRequest,
    LookupReply,
    LookupRequest,
    ReportReply,
    ZoneReport,
)
from swell.directory.records import Forgotten
from swell.directory.service import JOURNAL, DirectoryService
from swell.journal.record import Entry, Kind, encode_batch, genesis
from swell.journal.replay import number_payload
from swell.overlay.messages import LinkKind, Refused, Welcome
from swell.settings import RaftSettings
from swell.simulation.checkers.topology import problems
from swell.wire import codec
from tests.unit.overlay_toys import Cluster, Peer, contact, wait


def service(cluster: Cluster) -> DirectoryService:
    node = cluster.node(cluster.voter)
    assert node is not None
    assert node.service is not None
    return node.service


class Applicant(Peer):
    """A process that talks to the directory by hand."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__(cluster.simulation, name, cluster.voter)
        self.name = name
        self.connect(LinkKind.DIRECTORY, contact(0, 0, name))

    def request(self, **fields: Any) -> JoinRequest:
        request = JoinRequest(self.name, "uid", "site", "", "", self.name, 0, 1)
        return msgspec.structs.replace(request, **fields)

    def join(self, **fields: Any) -> Any:
        self.heard.clear()
        self.say(self.request(**fields))
        self.simulation.run_for(1.0)
        assert len(self.heard) == 1
        return self.heard[0]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster().build(3)


@pytest.fixture
def applicant(cluster: Cluster) -> Applicant:
    return Applicant(cluster, "new")


def test_a_newcomer_gets_an_id_a_zone_its_members_and_the_view(
    cluster: Cluster, applicant: Applicant
) -> None:
    reply = applicant.join(site="a")
    assert isinstance(reply, JoinReply)
    assert reply.contact.name == "new"
    assert reply.contact.id == 4
    assert reply.contact.zone == 1
    assert sorted(c.name for c in reply.members) == ["a1", "a2", "a3", "new"]
    assert [zone.id for zone in reply.view.zones] == [1]
    assert reply.bootstrap == ()


def test_a_new_zone_gets_a_bootstrap_list_that_names_every_other_zone_once() -> None:
    cluster = Cluster().build(3, 3)
    applicants = [Applicant(cluster, f"x{k}") for k in range(3)]
    for applicant in applicants:
        applicant.heard.clear()
        applicant.link.send(codec.encode(applicant.request(site="x")))
    cluster.run(2.0)
    replies = [a.heard[0] for a in applicants]
    assert {reply.contact.zone for reply in replies} == {3}
    zones = [b.zone for reply in replies for b in reply.bootstrap]
    assert sorted(zones) == [1, 2]
    for reply in replies:
        for bootstrap in reply.bootstrap:
            assert bootstrap.contacts
            assert all(c.zone == bootstrap.zone for c in bootstrap.contacts)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": "Bad Name"}, "bad-name"),
        ({"name": ""}, "bad-name"),
        ({"site": "../etc"}, "bad-name"),
        ({"rack": "r\n1"}, "bad-name"),
        ({"region": "x" * 64}, "bad-name"),
        ({"name": "a2"}, "wrong-identity"),
    ],
)
def test_refused_for_good(
    cluster: Cluster, applicant: Applicant, fields: dict[str, str], code: str
) -> None:
    reply = applicant.join(**fields)
    assert isinstance(reply, JoinRefused)
    assert reply.code == code
    assert len(service(cluster).state.nodes) == 3


def test_a_name_in_use_is_refused_while_its_node_lives(cluster: Cluster) -> None:
    thief = Peer(cluster.simulation, "other-machine", cluster.voter, identity="a2")
    thief.connect(LinkKind.DIRECTORY, contact(0, 0, "a2"))
    request = JoinRequest("a2", "another uid", "a", "", "", "other-machine", 0, 1)
    thief.say(request)
    (reply,) = thief.heard
    assert reply.code == "name-in-use"
    assert "a2" in reply.sentence
    old = cluster.contact("a2")
    cluster.crash(["a2"], power=True)
    state = service(cluster).state
    wait(cluster, lambda: not state.nodes[old.id].up, 60.0)
    thief.say(request)
    cluster.run(1.0)
    reply = thief.heard[-1]
    assert isinstance(reply, JoinReply)
    assert reply.contact.id not in (old.id, 0)
    assert old.id not in state.nodes


def test_two_nodes_that_ask_for_one_name_at_once_do_not_both_get_it(cluster: Cluster) -> None:
    """The second one asks while the first one's admission is being written."""
    first = Applicant(cluster, "twin")
    second = Peer(cluster.simulation, "twin2", cluster.voter, identity="twin")
    second.connect(LinkKind.DIRECTORY, contact(0, 0, "twin"))
    directory = service(cluster)
    first.link.send(codec.encode(first.request(uid="one")))
    while not directory.admission.planning:
        assert cluster.simulation.step()
    voter = cluster.node(cluster.voter)
    assert voter is not None
    (session,) = [s for s in voter.sessions._all if s.link.address.host == "twin2"]
    second.heard.clear()
    directory.admission.on_join(session, JoinRequest("twin", "two", "site", "", "", "twin2", 0, 1))
    cluster.run(2.0)
    reply = first.heard[-1]
    assert isinstance(reply, JoinReply)
    assert [getattr(m, "code", "") for m in second.heard] == ["name-in-use"]
    assert directory.state.names["twin"] == reply.contact.id


def test_a_restart_keeps_id_and_zone_and_an_old_copy_is_refused(
    cluster: Cluster, applicant: Applicant
) -> None:
    first = applicant.join(epoch=3)
    again = applicant.join(epoch=4)
    assert (again.contact.id, again.contact.zone) == (first.contact.id, first.contact.zone)
    assert again.contact.epoch == 4
    stale = applicant.join(epoch=2)
    assert stale.code == "stale-epoch"
    assert "start with an empty one" in stale.sentence


def test_a_lost_answer_to_a_move_is_asked_for_again(cluster: Cluster) -> None:
    for k in range(4, 9):
        cluster.add(f"a{k}", "a")
    cluster.settle()
    applicant = Applicant(cluster, "mover")
    first = applicant.join(site="a")
    moved = applicant.join(site="a", leaving=first.contact.zone)
    assert moved.contact.id == first.contact.id
    assert moved.contact.zone != first.contact.zone
    again = applicant.join(site="a", leaving=first.contact.zone)
    assert again.contact == moved.contact


def test_candidates_and_look_up(cluster: Cluster, applicant: Applicant) -> None:
    (reply,) = applicant.say(CandidatesRequest(7, 1, 2))
    assert isinstance(reply, CandidatesReply)
    assert reply.number == 7
    assert len({c.name for c in reply.contacts}) == 2
    (reply,) = applicant.say(CandidatesRequest(8, 99, 2))
    assert reply == CandidatesReply(8, ())
    (reply,) = applicant.say(LookupRequest(9, "a3"))
    assert isinstance(reply, LookupReply)
    assert reply.contact == cluster.contact("a3")
    assert applicant.say(LookupRequest(10, "nobody")) == [LookupReply(10, None)]


def test_silent_nodes_go_down_come_up_and_are_forgotten() -> None:
    cluster = Cluster(forget_after_s=120.0).build(3)
    directory = service(cluster)
    a2, a3 = cluster.contact("a2"), cluster.contact("a3")
    cluster.crash(["a2", "a3"], power=True)
    wait(cluster, lambda: [e.up for e in directory.state.nodes.values()].count(False) == 2, 60.0)
    assert [zone.size for zone in directory.state.view().zones] == [1]
    cluster.processes["a3"].start()
    wait(cluster, lambda: directory.state.nodes[a3.id].up, 20.0)
    assert directory.state.nodes[a3.id].contact.epoch > a3.epoch
    wait(cluster, lambda: a2.id not in directory.state.nodes, 200.0)
    assert "a2" not in directory.state.names
    cluster.processes["a2"].start()
    cluster.settle()
    assert cluster.contact("a2").id > a3.id, "ids are never used again"


def test_a_report_brings_a_node_up_that_was_held_for_dead(cluster: Cluster) -> None:
    directory = service(cluster)
    a3 = cluster.contact("a3")
    cluster.processes["a3"].pause()
    wait(cluster, lambda: not directory.state.nodes[a3.id].up, 60.0)
    cluster.processes["a3"].resume()
    wait(cluster, lambda: directory.state.nodes[a3.id].up, 60.0)
    cluster.settle()
    assert directory.state.nodes[a3.id].contact == a3, "the same life"


def test_a_directory_that_stood_still_holds_nobody_for_dead(cluster: Cluster) -> None:
    cluster.add("b1", "b")
    cluster.settle()
    directory = service(cluster)
    cluster.processes[cluster.voter].suspend()
    cluster.run(60.0)
    cluster.processes[cluster.voter].resume()
    for _ in range(20):
        cluster.run(0.5)
        assert all(entry.up for entry in directory.state.nodes.values())


def test_reports_of_strangers_count_for_nothing(cluster: Cluster, applicant: Applicant) -> None:
    directory = service(cluster)
    assert applicant.say(ZoneReport(1, ((1, 1),), 10**6)) == []
    assert cluster.counter("report-of-stranger") == 1
    assert directory.state.epoch < 10**6


def test_a_report_is_answered_with_news_only(cluster: Cluster, applicant: Applicant) -> None:
    applicant.join(site="a")
    epoch = service(cluster).state.epoch
    everybody = tuple((n, e.contact.epoch) for n, e in service(cluster).state.nodes.items())
    (reply,) = applicant.say(ZoneReport(1, everybody, epoch))
    assert reply == ReportReply(1, None, (), False)
    (reply,) = applicant.say(ZoneReport(1, everybody[:2], epoch - 1))
    assert reply.view.epoch == epoch
    assert [c.id for c in reply.strangers] == [n for n, _ in everybody[2:]]


def test_a_directory_on_an_old_copy_of_its_log_catches_up(cluster: Cluster) -> None:
    voter = cluster.processes[cluster.voter]
    copy = voter.disk.snapshot()
    for name in ("b1", "b2", "b3"):
        cluster.add(name, "b")
    cluster.settle()
    epoch = service(cluster).state.epoch
    wait(cluster, lambda: cluster.overlay("b1").view.epoch == epoch)
    taken = {overlay.me.id for overlay in cluster.living()}
    voter.crash()
    voter.disk.restore(copy)
    voter.start()
    cluster.run(1.0)
    assert service(cluster).state.epoch < epoch
    wait(cluster, lambda: service(cluster).state.epoch > epoch, 30.0)
    wait(cluster, lambda: service(cluster).state.next_node > max(taken), 30.0)
    reply = Applicant(cluster, "late").join(site="a")
    assert reply.view.epoch > epoch
    assert service(cluster).state.next_node > reply.contact.id
    assert reply.contact.id not in taken


@pytest.mark.parametrize("power", [False, True])
def test_the_directory_comes_back_with_all_it_knew(cluster: Cluster, power: bool) -> None:
    before = {n: e.contact for n, e in service(cluster).state.nodes.items()}
    cluster.crash(list(cluster.processes), power=power)
    cluster.run(2.0)
    for process in cluster.processes.values():
        process.start()
    cluster.settle()
    after = {n: e.contact for n, e in service(cluster).state.nodes.items()}
    assert {n: (c.name, c.zone) for n, c in after.items()} == {
        n: (c.name, c.zone) for n, c in before.items()
    }
    assert all(after[n].epoch > before[n].epoch for n in after)


def test_a_log_of_another_version_halts_with_a_sentence(cluster: Cluster) -> None:
    voter = cluster.processes[cluster.voter]
    voter.crash()
    begin = Entry(Kind.SEGMENT, 0, number_payload(1))
    batch, _ = encode_batch([begin, Entry(Kind.DATA, 1, b"\x91\x2a")], 1, genesis(JOURNAL))
    voter.disk.restore({f"{JOURNAL}.00000001.log": batch, f"{JOURNAL}.clean": b""})
    voter.start()
    cluster.run(1.0)
    assert not voter.alive
    assert "another version" in voter.ended


def test_a_damaged_log_halts_with_a_sentence_and_is_left_as_it_is(cluster: Cluster) -> None:
    voter = cluster.processes[cluster.voter]
    voter.crash()
    copy = voter.disk.snapshot()
    data = bytearray(copy[f"{JOURNAL}.00000001.log"])
    data[20] ^= 1
    voter.disk.restore({**copy, f"{JOURNAL}.00000001.log": bytes(data)})
    for _ in range(2):
        voter.start()
        cluster.run(1.0)
        assert not voter.alive
        assert "damaged" in voter.ended
        assert "restore" in voter.ended
    voter.disk.restore(copy)
    voter.start()
    cluster.settle()
    assert problems(cluster) == []


def test_a_torn_tail_of_the_log_is_cut(cluster: Cluster) -> None:
    voter = cluster.processes[cluster.voter]
    known = sorted(service(cluster).state.names)
    voter.crash()
    copy = voter.disk.snapshot()
    copy[f"{JOURNAL}.00000001.log"] += copy[f"{JOURNAL}.00000001.log"][:30]
    voter.disk.restore(copy)
    voter.start()
    cluster.run(1.0)
    assert sorted(service(cluster).state.names) == known


def test_after_an_error_of_the_disk_the_log_is_written_anew(cluster: Cluster) -> None:
    voter = cluster.processes[cluster.voter]
    known = sorted(service(cluster).state.names)
    voter.disk.fail_next("sync")
    service(cluster).propose([Forgotten((999,))], lambda outcomes: None)
    cluster.run(1.0)
    assert not voter.alive
    assert "cannot be written" in voter.ended
    assert f"{JOURNAL}.unclean" in voter.disk.list()
    voter.start()
    cluster.run(1.0)
    assert f"{JOURNAL}.clean" in voter.disk.list()
    assert f"{JOURNAL}.snapshot" in voter.disk.list()
    assert sorted(service(cluster).state.names) == known


def test_the_log_stays_short() -> None:
    cluster = Cluster(raft=RaftSettings(snapshot_entries=8)).build(3)
    directory = service(cluster)
    limit = 64 * 1024  # the records of all slots are in it
    for _ in range(30):
        cluster.crash(["a3"])
        cluster.run(0.5)
        cluster.processes["a3"].start()
        cluster.run(3.0)
        assert directory._journal.bytes < limit
    cluster.settle()
    assert problems(cluster) == []


def test_nobody_is_served_before_the_log_is_read() -> None:
    cluster = Cluster().build(1)
    voter = cluster.processes[cluster.voter]
    applicant = Peer(cluster.simulation, "early", cluster.voter)
    voter.crash()
    voter.start()
    directory = service(cluster)
    refusal = directory.admit(contact(0, 0, "early"))
    assert isinstance(refusal, Refused)
    assert refusal.code == "not-ready"
    cluster.run(0.5)
    assert directory.admit(contact(0, 0, "early")) is None
    assert isinstance(applicant.connect(LinkKind.DIRECTORY, contact(0, 0, "early"))[0], Welcome)
