"""TLS of servers and clients. Certificate files are read again when they change."""

import contextlib
import ssl
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import grpc

from ortoo.common.errors import Invalid
from ortoo.common.logs import log_events
from ortoo.common.logs.logger import get_logger
from ortoo.common.process.clock import SystemClock

if TYPE_CHECKING:  # clients import this file as well, and have no such settings
    from ortoo.common.cluster.service_settings import ServiceSettings

CHECK_INTERVAL_S = 0.05
"""The delay before a new certificate is used, so that handshakes can finish reading the old certificate."""
SYSTEM = "system"
"""In place of a file: the roots that come with gRPC."""
MADE_FOR = timedelta(days=3_650)
"""The validity of certificates that are made here."""

T = TypeVar("T")
_log = get_logger("tls")


class ReloadingFiles(Generic[T]):
    """A value made from files, and made again when they change."""

    def __init__(self, files: Sequence[Path], make: Callable[[], T]) -> None:
        """Make the value now. Errors: those of `make`."""
        self._files = files
        self._make = make
        self._last_state = self._state()
        self.value = make()

    def reload_if_changed(self) -> bool:
        """Make the value again if the files have changed; returns whether there is a new value.

        If the changed files are invalid, the old value is kept.
        """
        state = self._state()
        if state == self._last_state:
            return False
        self._last_state = state
        try:
            self.value = self._make()
        except Invalid as error:
            _log.emit(log_events.CERTIFICATES_RELOAD_FAILED, reason=str(error))
            return False
        _log.emit(log_events.CERTIFICATES_RELOADED, files=[str(file) for file in self._files])
        return True

    def newest(self) -> T:
        """The value of the files as they are now; the last valid one if they are invalid."""
        self.reload_if_changed()
        return self.value

    def _state(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for file in self._files:
            try:
                about = file.stat()
            except OSError:
                found.append(None)
            else:
                found.append((about.st_ino, about.st_mtime_ns, about.st_size))
        return found


Contexts = ReloadingFiles[ssl.SSLContext]
"""The contexts of connections that are not gRPC's own; each connection uses the newest one."""


@dataclass(frozen=True, slots=True)
class TlsListener:
    """A further port of a server, with TLS."""

    address: str
    """host:port; port 0 takes any free one."""
    certificate_file: str
    """The server's certificate and the intermediate certificates, PEM. Empty = a self-signed certificate is made, for
    development. It protects against eavesdroppers, but only clients that trust any certificate accept it."""
    key_file: str
    """The certificate's private key, PEM."""
    client_ca_file: str = ""
    """The roots of clients' certificates, PEM. Every client must then show a certificate. Empty = clients need no
    certificate."""
    settings: tuple[str, str, str, str] = (
        "tls_listen_address", "tls_certificate_file", "tls_key_file", "tls_client_ca_file",
    )  # fmt: skip
    """The names of the settings for these four fields."""

    def credentials(self) -> grpc.ServerCredentials:
        """The port's credentials from the files, which are read again before a handshake if they have changed.

        Errors: Invalid, naming the setting.
        """
        if not (self.certificate_file and self.key_file):
            _log.emit(log_events.DEVELOPMENT_CERTIFICATE_USED, field=self.settings[1])
            certificate, key = make_self_signed_certificate(("localhost", "127.0.0.1", self.address.rpartition(":")[0]))
            return grpc.ssl_server_credentials([(key, certificate)])
        files = [Path(file) for file in (self.certificate_file, self.key_file, self.client_ca_file) if file]
        made = ReloadingFiles(files, self._read)

        def newest() -> grpc.ServerCertificateConfiguration | None:
            """The new configuration; None if no file has changed. gRPC calls this before each handshake, in a thread.

            Each configuration may be returned only once. gRPC then frees the old configuration, although another
            handshake may still read it, which would crash the process. The sleep lets such handshakes proceed first.
            """
            if not made.reload_if_changed():
                return None
            time.sleep(CHECK_INTERVAL_S)  # noqa: TID251  # that thread runs no event loop
            return made.value

        # None means that the configuration stays, by gRPC's documentation; its types lack that.
        return grpc.dynamic_ssl_server_credentials(made.value, newest, bool(self.client_ca_file))  # type: ignore[arg-type]

    def contexts(self) -> Contexts:
        """The same for a server that is not grpcio's: the contexts of its handshakes.

        Errors: Invalid, naming the setting.
        """
        if not (self.certificate_file and self.key_file):
            _log.emit(log_events.DEVELOPMENT_CERTIFICATE_USED, field=self.settings[1])
            return ReloadingFiles([], lambda: _self_signed_context(self.address))
        files = [Path(file) for file in (self.certificate_file, self.key_file, self.client_ca_file) if file]
        return ReloadingFiles(files, self._context)

    def _context(self) -> ssl.SSLContext:
        _, certificate_name, key_name, ca_name = self.settings
        context = _http2_context(ssl.PROTOCOL_TLS_SERVER)
        _load_pair(context, Path(self.key_file), Path(self.certificate_file), key_name, certificate_name)
        if self.client_ca_file:
            _load_roots(context, Path(self.client_ca_file), ca_name)
            context.verify_mode = ssl.CERT_REQUIRED
            # A resumed session would not check the certificate again.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
        return context

    def _read(self) -> grpc.ServerCertificateConfiguration:
        _, certificate_name, key_name, ca_name = self.settings
        key, certificate = _read_pair(Path(self.key_file), Path(self.certificate_file), key_name, certificate_name)
        roots = _read_roots(Path(self.client_ca_file), ca_name) if self.client_ca_file else None
        return grpc.ssl_server_certificate_configuration([(key, certificate)], roots)


@dataclass(frozen=True, slots=True)
class TlsClient:
    """The TLS settings of a client."""

    ca_file: str
    """The roots of servers' certificates, PEM; `system` = those that come with gRPC."""
    certificate_file: str = ""
    """The client's certificate, PEM; empty = none."""
    key_file: str = ""
    """The private key of that certificate, PEM."""

    def __post_init__(self) -> None:
        if bool(self.certificate_file) != bool(self.key_file):
            raise Invalid("give both the certificate and its key, or neither", field="tls_certificate_file")
        if not self.ca_file:
            raise Invalid(f"missing; give the file of trusted root certificates, or {SYSTEM!r}", field="tls_ca_file")

    def credentials(self) -> grpc.ChannelCredentials:
        """The credentials from the files. Errors: Invalid, naming the setting."""
        roots = None if self.ca_file == SYSTEM else _read_roots(Path(self.ca_file), "tls_ca_file")
        if not self.certificate_file:
            return grpc.ssl_channel_credentials(roots)
        files, names = (Path(self.key_file), Path(self.certificate_file)), ("tls_key_file", "tls_certificate_file")
        return grpc.ssl_channel_credentials(roots, *_read_pair(*files, *names))

    def reloading(self) -> ReloadingFiles[grpc.ChannelCredentials]:
        """The credentials, made again when the files change. Errors: Invalid, naming the setting."""
        files = (self.ca_file, self.certificate_file, self.key_file)
        return ReloadingFiles([Path(file) for file in files if file not in ("", SYSTEM)], self.credentials)


def is_tls(auth_context: Mapping[str, Iterable[bytes]]) -> bool:
    """Whether the connection of a call uses TLS, by the `auth_context()` of the call."""
    return b"ssl" in auth_context.get("transport_security_type", ())


def cluster_credentials(settings: "ServiceSettings") -> ReloadingFiles[grpc.ChannelCredentials] | None:
    """The credentials for calls to other processes of the cluster; None = calls in plaintext.

    Both sides show certificates that the same roots have signed. Errors: Invalid, naming the setting.
    """
    if not settings.tls_cluster_listen_address:
        return None
    roots = Path(settings.tls_cluster_ca_file)
    files = Path(settings.tls_cluster_key_file), Path(settings.tls_cluster_certificate_file)

    def read() -> grpc.ChannelCredentials:
        names = "tls_cluster_key_file", "tls_cluster_certificate_file"
        return grpc.ssl_channel_credentials(_read_roots(roots, "tls_cluster_ca_file"), *_read_pair(*files, *names))

    return ReloadingFiles([roots, *files], read)


def cluster_contexts(settings: "ServiceSettings") -> Contexts | None:
    """The same certificates for connections that are not gRPC's own. Errors: Invalid, naming the setting."""
    if not settings.tls_cluster_listen_address:
        return None
    roots = Path(settings.tls_cluster_ca_file)
    files = Path(settings.tls_cluster_key_file), Path(settings.tls_cluster_certificate_file)

    def make() -> ssl.SSLContext:
        context = _http2_context(ssl.PROTOCOL_TLS_CLIENT)
        _load_pair(context, *files, "tls_cluster_key_file", "tls_cluster_certificate_file")
        _load_roots(context, roots, "tls_cluster_ca_file")
        return context

    return ReloadingFiles([roots, *files], make)


def cluster_listener(settings: "ServiceSettings", address: str = "") -> TlsListener | None:
    """The TLS port for processes of the cluster, at `address` or, if it is empty, at the address in the settings.

    None if the settings have no TLS for the cluster.
    """
    if not settings.tls_cluster_listen_address:
        return None
    return TlsListener(
        address or settings.tls_cluster_listen_address,
        settings.tls_cluster_certificate_file,
        settings.tls_cluster_key_file,
        settings.tls_cluster_ca_file,
        ("tls_cluster_listen_address", "tls_cluster_certificate_file", "tls_cluster_key_file", "tls_cluster_ca_file"),
    )


def make_self_signed_certificate(hosts: Sequence[str]) -> tuple[bytes, bytes]:
    """A self-signed certificate for names or addresses of hosts, and its key, both PEM, for development."""
    # The import takes a tenth of a second, and is only needed here.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(host.strip("[]") for host in hosts if host and host.isascii()):
        name: x509.GeneralName = x509.DNSName(host)
        with contextlib.suppress(ValueError):
            name = x509.IPAddress(ip_address(host))
        names.append(name)
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Ortoo, for development")])
    now = datetime.fromtimestamp(SystemClock().now_ms() // 1000, UTC)
    made = (
        x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + MADE_FOR)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), private


def _http2_context(side: int) -> ssl.SSLContext:
    """A context of servers or clients for HTTP/2, which needs TLS 1.2 or later."""
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    return context


def _self_signed_context(address: str) -> ssl.SSLContext:
    certificate, key = make_self_signed_certificate(("localhost", "127.0.0.1", address.rpartition(":")[0]))
    context = _http2_context(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:  # OpenSSL reads files only
        file.write(key + certificate)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _read_pair(key_file: Path, certificate_file: Path, key_field: str, field: str) -> tuple[bytes, bytes]:
    """Read and check a key and its certificate; gRPC would accept any two texts and then fail. Errors: Invalid."""
    _load_pair(_context(), key_file, certificate_file, key_field, field)
    return _read(key_file, key_field), _read(certificate_file, field)


def _load_pair(context: ssl.SSLContext, key_file: Path, certificate_file: Path, key_field: str, field: str) -> None:
    """Let a context show a certificate. Errors: Invalid."""
    _read(key_file, key_field)
    _read(certificate_file, field)
    try:
        context.load_cert_chain(certificate_file, key_file, password="")
    except (OSError, ValueError) as error:
        words = f"{certificate_file} is not the certificate of the key in {key_file}: {error}; give a matching pair"
        raise Invalid(words, field=field) from None


def _read_roots(file: Path, field: str) -> bytes:
    """Read trusted certificates. Errors: Invalid."""
    _load_roots(_context(), file, field)
    return _read(file, field)


def _load_roots(context: ssl.SSLContext, file: Path, field: str) -> None:
    """Let a context trust certificates. Errors: Invalid."""
    _read(file, field)
    try:
        context.load_verify_locations(file)
    except OSError as error:
        raise Invalid(f"{file} contains an invalid certificate: {error}; give PEM", field=field) from None


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")  # gRPC decides which keys are long enough
    return context


def _read(file: Path, field: str) -> bytes:
    try:
        text = file.read_bytes()
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}; give a PEM file", field=field) from None
    if b"-----BEGIN " not in text:
        raise Invalid(f"{file} is not a PEM file; it must contain a line like -----BEGIN ...-----", field=field)
    return text
