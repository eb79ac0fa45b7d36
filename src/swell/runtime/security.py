"""The cluster's own certificate authority, and TLS contexts that trust nothing else.

A cluster has a random 128-bit id, written in the authority's subject (O) and in `cluster.json`.
A holder's identity is the URI `swell://CLUSTER/ROLE/NAME` in its certificate's subject alternative
names, and nothing else: no host name is checked, since nodes move and identities do not. The role
is node, admin or client. TLS 1.3 only, certificates required on both sides, ECDSA P-256.

Files of the authority: `ca.pem`, `ca.key`, `cluster.json`. Files of a holder: `ca.pem`, `node.pem`,
`node.key`. Keys are readable by their owner only; nothing is ever overwritten.
"""

from __future__ import annotations

import datetime
import os
import re
import ssl
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from swell.errors import ConfigurationError, WireError
from swell.ids import check_name
from swell.world import Role

AUTHORITY_DAYS = 3650
NODE_DAYS = 825

_IDENTITY = re.compile(r"swell://([0-9a-f]{32})/(node|admin|client)/([a-z0-9._-]{1,63})\Z")


class Cluster(msgspec.Struct, frozen=True):
    """What `cluster.json` says."""

    id: str
    name: str
    created: str


def create_cluster(directory: Path, name: str) -> Cluster:
    """Make a new authority in `directory`; refuses to touch one that is there."""
    check_name(name, "cluster name")
    if (directory / "ca.key").exists() or (directory / "cluster.json").exists():
        raise ConfigurationError(
            f"{directory} holds a cluster already: choose another directory, its authority is "
            "never overwritten"
        )
    cluster = Cluster(os.urandom(16).hex(), name, _now().isoformat(timespec="seconds"))
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, cluster.id),
            x509.NameAttribute(NameOID.COMMON_NAME, f"swell cluster {name}"),
        ]
    )
    key = ec.generate_private_key(ec.SECP256R1())
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = _builder(subject, subject, key.public_key(), AUTHORITY_DAYS)
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _make_directory(directory)
    _write_new(directory / "ca.key", _key_bytes(key), 0o600)
    _write_new(directory / "ca.pem", certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    _write_new(directory / "cluster.json", msgspec.json.encode(cluster), 0o644)
    return cluster


def load_cluster(directory: Path) -> Cluster:
    try:
        return msgspec.json.decode((directory / "cluster.json").read_bytes(), type=Cluster)
    except FileNotFoundError:
        raise ConfigurationError(
            f"there is no cluster in {directory}: make one with `swell cluster create`"
        ) from None
    except (msgspec.DecodeError, OSError) as error:
        raise ConfigurationError(f"cannot read {directory / 'cluster.json'}: {error}") from None


def issue(directory: Path, node: str, out: Path, role: Role = Role.NODE) -> x509.Certificate:
    """Make a key and a certificate for `node`, signed by the authority in `directory`."""
    check_name(node, "node name")
    cluster = load_cluster(directory)
    for file in ("node.key", "node.pem"):
        if (out / file).exists():
            raise ConfigurationError(f"{out / file} exists: choose another --out, or remove it")
    authority, authority_key = _load_authority(directory)
    if (out / "ca.pem").exists() and _load_certificate(out / "ca.pem") != authority:
        raise ConfigurationError(f"{out} holds files of another cluster: choose another --out")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, cluster.id),
            x509.NameAttribute(NameOID.COMMON_NAME, node),
        ]
    )
    identity = x509.UniformResourceIdentifier(f"swell://{cluster.id}/{role}/{node}")
    both_sides = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _builder(subject, authority.subject, key.public_key(), NODE_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([identity]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(both_sides), critical=False)
        .add_extension(signer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _make_directory(out)
    _write_new(out / "node.key", _key_bytes(key), 0o600)
    _write_new(out / "node.pem", certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    if not (out / "ca.pem").exists():
        _write_new(out / "ca.pem", authority.public_bytes(serialization.Encoding.PEM), 0o644)
    return certificate


def authority_expiry(directory: Path) -> datetime.datetime:
    """When the authority's own certificate ends, and with it every node's."""
    return _load_certificate(directory / "ca.pem").not_valid_after_utc


class TlsMaterial:
    """The key and certificates of one node, checked and ready for contexts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        authority = _load_certificate(directory / "ca.pem")
        own = _load_certificate(directory / "node.pem")
        self.cluster, self.role, self.node = _identity_of(own, directory / "node.pem")
        self.expires = own.not_valid_after_utc
        subject_ids = authority.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        if [item.value for item in subject_ids] != [self.cluster]:
            raise ConfigurationError(
                f"{directory / 'node.pem'} is of another cluster than {directory / 'ca.pem'}"
            )
        if self.expires <= _now():
            raise ConfigurationError(
                f"the certificate of {self.role} {self.node} has expired: issue a new one "
                "with `swell cluster issue`"
            )
        key = directory / "node.key"
        if not key.exists():
            raise ConfigurationError(f"{key} is missing: issue a certificate for this node")
        if key.stat().st_mode & 0o077:
            raise ConfigurationError(f"{key} can be read by others: run `chmod 600 {key}`")

    def check_name(self, node: str) -> None:
        if node != self.node:
            raise ConfigurationError(
                f"the certificate in {self.directory} is for {self.role} {self.node!r}, not for "
                f"{node!r}: issue one for this node with `swell cluster issue {node}`"
            )

    def check_role(self, role: Role) -> None:
        if role is not self.role:
            raise ConfigurationError(
                f"the certificate in {self.directory} has the role {self.role}, a {role} needs "
                "one of its own: make it with `swell cluster issue`"
            )

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.num_tickets = 0  # sessions are never resumed: every link proves its identity
        return self._finish(context)

    def client_context(self) -> ssl.SSLContext:
        return self._finish(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def identify(self, certificate: dict[str, Any] | None) -> tuple[Role, str]:
        """Role and name in a peer's verified certificate; `WireError` if it has none."""
        for kind, value in (certificate or {}).get("subjectAltName", ()):
            match = _IDENTITY.match(value) if kind == "URI" else None
            if match is not None and match[1] == self.cluster:
                return Role(match[2]), match[3]
        raise WireError("wrong-identity", "the certificate names nobody of this cluster")

    def _finish(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(self.directory / "ca.pem")
            context.load_cert_chain(self.directory / "node.pem", self.directory / "node.key")
        except (ssl.SSLError, OSError) as error:
            raise ConfigurationError(f"cannot use the keys in {self.directory}: {error}") from None
        return context


def _identity_of(certificate: x509.Certificate, file: Path) -> tuple[str, Role, str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = x509.SubjectAlternativeName([])
    for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
        match = _IDENTITY.match(uri)
        if match is not None:
            return match[1], Role(match[2]), match[3]
    raise ConfigurationError(f"{file} is not a certificate made by `swell cluster issue`")


def _load_certificate(file: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except FileNotFoundError:
        raise ConfigurationError(
            f"{file} is missing: make it with `swell cluster create` and `swell cluster issue`"
        ) from None
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"cannot read {file}: {error}") from None


def _load_authority(directory: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        pem = (directory / "ca.key").read_bytes()
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, OSError) as error:
        raise ConfigurationError(f"cannot read {directory / 'ca.key'}: {error}") from None
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return _load_certificate(directory / "ca.pem"), key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    begin = _now() - datetime.timedelta(hours=1)  # clocks of a fleet differ a little
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=days))
    )


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"cannot make {directory}: {error.strerror}") from None


def _write_new(file: Path, data: bytes, mode: int) -> None:
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise ConfigurationError(f"cannot write {file}: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
