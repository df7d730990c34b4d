"""The cluster's secret tokens, read from files that its processes have and clients do not have.

Calls between roles carry a proof in the header `x-ortoo-cluster`: the time in seconds, a dot, and an HMAC in
hexadecimal. It is HMAC-SHA256 with the token over the time and the call's path. A stream has the proof of its opening.
An eavesdropper could repeat a proof, for the same method and for some minutes; TLS prevents that.
"""

import hashlib
import hmac
from pathlib import Path
from typing import TYPE_CHECKING

from ortoo.common.errors import Forbidden, Invalid
from ortoo.common.grpc.channels import Channels, Headers
from ortoo.common.grpc.tls import cluster_contexts, cluster_credentials
from ortoo.common.process.clock import Clock

if TYPE_CHECKING:  # clients import this file as well, and have no such settings
    from ortoo.common.cluster.service_settings import ServiceSettings

ADMIN_TOKEN = "x-ortoo-admin-token"
"""The header of the token in the name server's `admin_token_file`, in plain text.

Snodes send it in calls about users and keys. Operators send it in their calls to name servers, instead of a proof.
"""
CLUSTER_PROOF = "x-ortoo-cluster"
LENGTH_MIN = 16
WINDOW_S = 600
"""Maximum difference between the clocks of two processes."""


def read_token(path: str, field: str) -> str:
    """The token in a file; empty when no file is named. Errors: Invalid, naming the setting `field`."""
    if not path:
        return ""
    try:
        token = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} cannot be read: {error}", field=field) from None
    if len(token) < LENGTH_MIN or not (token.isascii() and token.isprintable()):
        raise Invalid(f"{path}: give at least {LENGTH_MIN} printable ASCII characters", field=field)
    return token


def is_token(expected: str, given: str) -> bool:
    """Whether a caller has given the expected token; False if no token is expected."""
    return bool(expected) and hmac.compare_digest(expected.encode(), given.encode())


def check_admin_token(expected: str, presented: str) -> None:
    """Refuse a token other than `expected`; if `expected` is empty, every token is accepted. Errors: Forbidden."""
    if expected and not is_token(expected, presented):
        raise Forbidden(
            "only callers with the token of the name server's admin_token_file may use users and keys",
            field=ADMIN_TOKEN,
        )


class ClusterToken:
    """The cluster's token: makes the proofs that calls carry, and checks them."""

    def __init__(self, token: str, clock: Clock) -> None:
        """`token` must not be empty."""
        self._key = token.encode()
        self._clock = clock

    def headers(self, path: str, request: bytes | None) -> Headers:
        """The headers with the proof for a call that is made now."""
        now_s = self._clock.now_ms() // 1000
        return ((CLUSTER_PROOF, f"{now_s}.{self._digest(now_s, path)}"),)

    def check(self, path: str, proof: str) -> None:
        """Refuse a text that is not a valid proof for a call of `path`. Errors: Forbidden."""
        said, _, digest = proof.partition(".")
        now_s = self._clock.now_ms() // 1000
        time_s = int(said) if said.isascii() and said.isdecimal() and len(said) < 16 else 0
        if not hmac.compare_digest(digest.encode(), self._digest(time_s, path).encode()):
            raise Forbidden(
                "this port is the cluster's own: clients call snodes, and the processes of the cluster need the same "
                "cluster_token_file",
                field=CLUSTER_PROOF,
            )
        if abs(now_s - time_s) > WINDOW_S:
            raise Forbidden(
                f"the proof was made at {time_s} s since 1970, but this clock shows {now_s} s. At most {WINDOW_S} s "
                "are allowed; set the clocks",
                field=CLUSTER_PROOF,
            )

    def _digest(self, time_s: int, path: str) -> str:
        return hmac.digest(self._key, f"{time_s}\n{path}".encode(), hashlib.sha256).hex()


def cluster_token(path: str, clock: Clock) -> ClusterToken | None:
    """The token in the file of the setting `cluster_token_file`; None without a file. Errors: Invalid."""
    token = read_token(path, "cluster_token_file")
    return ClusterToken(token, clock) if token else None


def cluster_channels(settings: "ServiceSettings", token: ClusterToken | None, *, wire: str = "") -> Channels:
    """Channels to other processes of the cluster. With a `token`, their calls carry a proof of it.

    `wire` is that of `Channels`.

    The channels use TLS if `settings` have mutual TLS. They never use an HTTP proxy.
    Errors: Invalid, naming the setting whose file is wrong.
    """
    return Channels(
        token.headers if token is not None else None,
        cluster_credentials(settings),
        tls_name=settings.tls_cluster_name,
        uses_proxy=False,
        wire=wire,
        contexts=cluster_contexts(settings) if wire else None,
    )
