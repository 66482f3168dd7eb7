"""Certificates of a cluster: one CA, and one key pair for each replica and client.

A certificate says who its holder is in exactly one place, a URI in the subject alternative name: `amcast://CLUSTER/NAME`
with NAME such as g0/1 or client/alice. A client's may open connections and not accept them, so that it cannot pose as a
replica even before its name is looked at. That of the store's port for Redis clients, NAME kv, may only accept them. It
also has the hosts by which those clients reach it, for that is what they look at.
"""

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from amcast.errors import UsageError
from amcast.runtime.config import HOST, file_name

CA_DAYS: Final = 3650
LEAF_DAYS: Final = 365
CLOCKS_DIFFER: Final = timedelta(hours=1)
STORE: Final = "kv"  # whose certificate Redis clients are shown
HERE: Final = ("localhost", "127.0.0.1", "::1")
NEXT: Final = "ca-next"  # the key of a CA that is trusted, and signs nothing yet


def identity_uri(cluster: str, name: str) -> str:
    return f"amcast://{cluster}/{name}"


# Reading


def read_certificates(path: Path) -> list[x509.Certificate]:
    """Return all certificates of a PEM file, at least one."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror}); 'amcast certs' makes the certificates of a cluster"
        ) from error
    except ValueError as error:
        raise UsageError(f"{path}: is not a certificate in PEM; 'amcast certs' makes new ones") from error


def read_key(path: Path) -> PrivateKeyTypes:
    """Return a private key that nobody else can read."""
    try:
        refuse_open_key(path, path.stat())
        return load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); 'amcast certs' makes the keys") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path}: is not a private key in PEM without password; 'amcast certs' makes one") from error


def written(files: list[Path]) -> list[tuple[int, int]]:
    """Return what tells these files from others, or from none, in their places."""
    found: list[tuple[int, int]] = []
    for path in files:
        with suppress(OSError):
            status = path.stat()
            found.append((status.st_ino, status.st_mtime_ns))
    return found


def public_of(path: Path) -> object:
    """Return what a certificate of this private key has."""
    return read_key(path).public_key()


def refuse_open_key(path: Path, status: os.stat_result) -> None:
    """Refuse a key that others can read. One of root may be for the group too: that is how secrets are mounted."""
    allowed = 0o640 if status.st_uid == 0 and os.geteuid() != 0 else 0o600
    if status.st_mode & 0o777 & ~allowed:
        raise UsageError(
            f"{path}: mode {status.st_mode & 0o777:04o}: others may read this private key; expected "
            f"{allowed:04o} or less: chmod {allowed:04o} {path}, and renew it if it may have been read"
        )


def uris_of(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def hosts_of(folder: Path) -> list[str]:
    """Return the names and addresses in the certificate of the store, none if there is none."""
    try:
        own = read_certificates(folder / f"{STORE}.crt")[0]
        names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (UsageError, x509.ExtensionNotFound, ValueError):
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def is_issued_by(certificate: x509.Certificate, issuers: Iterable[x509.Certificate]) -> bool:
    for issuer in issuers:
        try:
            certificate.verify_directly_issued_by(issuer)
            return True
        except (InvalidSignature, ValueError, TypeError):
            continue
    return False


def day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")


def check_certificate(folder: Path, ca: Path, cluster: str, name: str) -> tuple[Path, Path]:
    """Return the files of a name's certificate and key; UsageError unless they are its own, in date and from the CA."""
    crt, key = folder / f"{file_name(name)}.crt", folder / f"{file_name(name)}.key"
    chain = read_certificates(crt)
    own, now = chain[0], datetime.now(UTC)
    if own.not_valid_after_utc < now:
        raise UsageError(
            f"certificate of {name} expired on {day(own.not_valid_after_utc)} ({crt}); "
            "make new ones with 'amcast certs'"
        )
    if own.not_valid_before_utc > now:
        raise UsageError(
            f"certificate of {name} is valid from {day(own.not_valid_before_utc)} ({crt}), now it is {day(now)}; "
            "check the clock"
        )
    expected = identity_uri(cluster, name)
    if uris_of(own) != [expected]:
        seen = ", ".join(uris_of(own)) or "nobody"
        raise UsageError(f"{crt}: certificate of {seen}, expected {expected}; 'amcast certs' makes it")
    if own.public_key() != read_key(key).public_key():
        raise UsageError(f"{key}: is not the key of the certificate in {crt}; make both with 'amcast certs --renew'")
    if not is_issued_by(chain[-1], read_certificates(ca)):
        raise UsageError(f"{crt}: is not from the CA in {ca}; make new ones with 'amcast certs --renew'")
    return crt, key


# Making


def make_certificates(
    folder: Path,
    cluster: str,
    names: Iterable[str],
    days: int = LEAF_DAYS,
    renew: bool = False,
    hosts: Collection[str] = (),
) -> list[str]:
    """Make the CA and the certificates that are missing, unusable or in their last third; with `renew`, all but the CA.

    `hosts` are for the certificate of the store. Return the names whose certificates were made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca, ca_key = ready_ca(folder, cluster)
    made = []
    for name in names:
        wanted = hosts if name == STORE else ()
        if renew or not is_good(folder, cluster, name, ca) or (wanted and set(hosts_of(folder)) != set(wanted)):
            key = ec.generate_private_key(ec.SECP256R1())
            write_pair(folder, file_name(name), leaf(ca, ca_key, cluster, name, key, days, wanted), key)
            made.append(name)
    return made


def ready_ca(folder: Path, cluster: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the CA of the folder; make one if there is none."""
    crt, key_path = folder / "ca.crt", folder / "ca.key"
    if not crt.exists() and not key_path.exists():
        key = ec.generate_private_key(ec.SECP256R1())
        ca = root(cluster, key)
        write_pair(folder, "ca", ca, key)
        return ca, key
    return whole_ca(folder, cluster)


def whole_ca(folder: Path, cluster: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the CA that signs: of those in ca.crt, the one whose key is ca.key. Raises UsageError."""
    crt, key_path = folder / "ca.crt", folder / "ca.key"
    for path in (crt, key_path):
        if not path.exists():
            raise UsageError(f"{path}: is missing; certificates are made where the CA is whole, ca.crt and ca.key")
    found, public = read_key(key_path), public_of(key_path)
    ca = next((one for one in read_certificates(crt) if one.public_key() == public), None)
    if not isinstance(found, ec.EllipticCurvePrivateKey) or ca is None:
        raise UsageError(f"{key_path}: is not the key of the CA in {crt}; expected the two that were made together")
    if ca.subject != ca_name(cluster):
        raise UsageError(f"{crt}: CA {ca.subject.rfc4514_string()}, expected {ca_name(cluster).rfc4514_string()}")
    if ca.not_valid_after_utc < datetime.now(UTC):
        raise UsageError(f"{crt}: the CA expired on {day(ca.not_valid_after_utc)}; move it away to start a new one")
    return ca, found


def replace_ca(folder: Path, cluster: str, step: str) -> None:
    """Go a step from one CA to the next; before another one, all who are part of the cluster get the new files.

    trust   make the next CA, and trust both; the old one still signs
    use     have the new one sign; all certificates are to be made anew
    drop    trust the new one only

    A step that was interrupted can be given again. Raises UsageError if another one is due.
    """
    ca, _ = whole_ca(folder, cluster)
    trusted, upcoming = read_certificates(folder / "ca.crt"), folder / f"{NEXT}.key"
    if step == "trust":
        if len(trusted) > 1:
            raise UsageError(
                f"{folder / 'ca.crt'}: {len(trusted)} CAs are trusted already, expected 1; {after(ca, trusted)}"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        write_whole(upcoming, pem_of(key), 0o600)
        write_authorities(folder, [ca, root(cluster, key)])
        return
    if len(trusted) < 2:
        raise UsageError(f"{folder / 'ca.crt'}: 1 CA is trusted, expected the old and the new; 'trust' comes first")
    if step == "use":
        if ca == trusted[0]:
            if not upcoming.exists() or public_of(upcoming) != trusted[-1].public_key():
                raise UsageError(
                    f"{upcoming}: is not the key of the last CA in ca.crt; put it back where 'trust' made it"
                )
            os.replace(upcoming, folder / "ca.key")
        return
    if ca == trusted[0]:
        raise UsageError(f"{folder / 'ca.crt'}: the old CA still signs, expected the new one; 'use' comes first")
    for path in sorted(folder.glob("*.crt")):
        if path.name != "ca.crt" and not is_issued_by(read_certificates(path)[-1], [ca]):
            raise UsageError(f"{path}: is from the old CA, expected one of the new; 'use' makes it, or remove it")
    write_authorities(folder, [ca])


def after(ca: x509.Certificate, trusted: list[x509.Certificate]) -> str:
    return f"'{'use' if ca == trusted[0] else 'drop'}' comes next"


def write_authorities(folder: Path, authorities: list[x509.Certificate]) -> None:
    write_whole(folder / "ca.crt", b"".join([one.public_bytes(Encoding.PEM) for one in authorities]), 0o644)


def is_good(folder: Path, cluster: str, name: str, ca: x509.Certificate) -> bool:
    try:
        crt, _ = check_certificate(folder, folder / "ca.crt", cluster, name)
    except UsageError:
        return False
    own = read_certificates(crt)[0]
    if not is_issued_by(own, [ca]):  # but by the one before it
        return False
    end = own.not_valid_after_utc
    return (end - datetime.now(UTC)) * 3 > end - own.not_valid_before_utc or end == ca.not_valid_after_utc


def ca_name(cluster: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"CA of {cluster}"[:64])])


def builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - CLOCKS_DIFFER)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def root(cluster: str, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = ca_name(cluster)
    return (
        builder(name, name, key, datetime.now(UTC) + timedelta(days=CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def leaf(
    ca: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    cluster: str,
    name: str,
    key: ec.EllipticCurvePrivateKey,
    days: int,
    hosts: Iterable[str] = (),
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    until = min(datetime.now(UTC) + timedelta(days=days), ca.not_valid_after_utc)
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH] if name != STORE else []
    if not name.startswith("client/"):
        uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
    names = [x509.UniformResourceIdentifier(identity_uri(cluster, name)), *map(general_name, hosts)]
    return (
        builder(subject, ca.subject, key, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(
                ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
            ),
            critical=False,
        )
        .sign(ca_key, hashes.SHA256())
    )


def general_name(host: str) -> x509.GeneralName:
    """Return a name or an address as a certificate has it. Raises UsageError."""
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        if not HOST.fullmatch(host):
            raise UsageError(f"{host!r}: expected the name or the address by which clients reach the store") from None
        return x509.DNSName(host)


def write_pair(folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    """Write the key first: a certificate without its key would look finished."""
    write_whole(folder / f"{name}.key", pem_of(key), 0o600)
    write_whole(folder / f"{name}.crt", certificate.public_bytes(Encoding.PEM), 0o644)


def pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def write_whole(path: Path, data: bytes, mode: int) -> None:
    """Write a file that appears with all of its content and its mode, or not at all."""
    new = path.with_name(f"{path.name}.new")
    try:
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(new, path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror})") from error
