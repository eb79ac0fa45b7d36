"""The cluster's authority and the material of its nodes."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from swell.errors import ConfigurationError, InvalidNameError, WireError
from swell.runtime.security import TlsMaterial, create_cluster, issue, load_cluster
from swell.world import Role


@pytest.fixture(name="authority")
def make_authority(tmp_path: Path) -> Path:
    create_cluster(tmp_path / "ca", "prod")
    return tmp_path / "ca"


def test_a_cluster_is_created_once(authority: Path) -> None:
    cluster = load_cluster(authority)
    assert cluster.name == "prod"
    assert len(bytes.fromhex(cluster.id)) == 16
    key = (authority / "ca.key").read_bytes()
    with pytest.raises(ConfigurationError, match="holds a cluster already"):
        create_cluster(authority, "prod")
    assert (authority / "ca.key").read_bytes() == key


def test_keys_are_for_their_owner_only(authority: Path, tmp_path: Path) -> None:
    issue(authority, "n1", tmp_path / "n1")
    for key in (authority / "ca.key", tmp_path / "n1" / "node.key"):
        assert key.stat().st_mode & 0o777 == 0o600


def test_material_of_a_node(authority: Path, tmp_path: Path) -> None:
    issue(authority, "n1", tmp_path / "n1")
    material = TlsMaterial(tmp_path / "n1")
    assert material.node == "n1"
    assert material.cluster == load_cluster(authority).id
    material.check_name("n1")
    with pytest.raises(ConfigurationError, match="is for node 'n1', not for 'n2'"):
        material.check_name("n2")
    for context in (material.server_context(), material.client_context()):
        assert context.minimum_version == ssl.TLSVersion.TLSv1_3
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert len(context.get_ca_certs()) == 1


def test_nothing_is_overwritten(authority: Path, tmp_path: Path) -> None:
    issue(authority, "n1", tmp_path / "n1")
    key = (tmp_path / "n1" / "node.key").read_bytes()
    with pytest.raises(ConfigurationError, match="exists"):
        issue(authority, "n1", tmp_path / "n1")
    assert (tmp_path / "n1" / "node.key").read_bytes() == key


def test_a_key_that_others_can_read_is_refused(authority: Path, tmp_path: Path) -> None:
    issue(authority, "n1", tmp_path / "n1")
    (tmp_path / "n1" / "node.key").chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        TlsMaterial(tmp_path / "n1")


def test_mixed_clusters_are_refused(authority: Path, tmp_path: Path) -> None:
    create_cluster(tmp_path / "ca2", "other")
    issue(authority, "n1", tmp_path / "n1")
    (tmp_path / "n1" / "ca.pem").write_bytes((tmp_path / "ca2" / "ca.pem").read_bytes())
    with pytest.raises(ConfigurationError, match="another cluster"):
        TlsMaterial(tmp_path / "n1")
    with pytest.raises(ConfigurationError, match="another cluster"):
        issue(authority, "n2", tmp_path / "ca2")


@pytest.mark.parametrize("file", ["ca.pem", "node.pem", "node.key"])
def test_missing_or_damaged_files(authority: Path, tmp_path: Path, file: str) -> None:
    issue(authority, "n1", tmp_path / "n1")
    path = tmp_path / "n1" / file
    path.write_bytes(b"-----BEGIN NONSENSE-----\n")
    with pytest.raises(ConfigurationError):
        TlsMaterial(tmp_path / "n1").server_context()
    path.unlink()
    with pytest.raises(ConfigurationError, match="missing"):
        TlsMaterial(tmp_path / "n1")


@pytest.mark.parametrize("name", ["", "N1", "a/b", "..", "x" * 64])
def test_bad_names(authority: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidNameError):
        issue(authority, name, tmp_path / "out")
    with pytest.raises(InvalidNameError):
        create_cluster(tmp_path / "new", name)
    assert not (tmp_path / "out").exists()


def test_the_peer_is_named_by_its_uri_of_this_cluster_only(authority: Path, tmp_path: Path) -> None:
    issue(authority, "n1", tmp_path / "n1")
    material = TlsMaterial(tmp_path / "n1")
    own, other = f"swell://{material.cluster}/node/", f"swell://{'0' * 32}/node/"
    named = material.identify({"subjectAltName": (("URI", own + "n7"),)})
    assert named == (Role.NODE, "n7")
    for names in (
        (("DNS", own + "n7"),),
        (("URI", other + "n7"),),
        (("URI", own),),
        (("URI", own.replace("node", "root") + "n7"),),
        (),
    ):
        with pytest.raises(WireError, match="wrong-identity"):
            material.identify({"subjectAltName": names})
    with pytest.raises(WireError):
        material.identify(None)


@pytest.mark.parametrize("role", [Role.NODE, Role.ADMIN, Role.CLIENT])
def test_a_certificate_tells_its_role(authority: Path, tmp_path: Path, role: Role) -> None:
    issue(authority, "ann", tmp_path / role, role)
    material = TlsMaterial(tmp_path / role)
    assert (material.role, material.node) == (role, "ann")
    if role is Role.NODE:
        material.check_role(Role.NODE)
    else:
        with pytest.raises(ConfigurationError, match=f"has the role {role}, a node needs"):
            material.check_role(Role.NODE)
