"""A channel that signs its calls, for clusters with access control."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import grpc

from ortoo.common.errors import Invalid
from ortoo.common.grpc.signature import signed_headers
from ortoo.common.process.clock import Clock

ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE = "ORTOO_ACCESS_KEY", "ORTOO_SECRET_KEY"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who calls."""

    access_key: str
    secret_key: str = field(repr=False)

    def __post_init__(self) -> None:
        if not self.access_key or not self.secret_key:
            raise Invalid("give both the access key and its secret, or neither", field="access_key")


def credentials_from(access_key: str, secret_key: str) -> Credentials | None:
    """Those that are given, else those of the environment, else none. Errors: Invalid for one half only."""
    if not access_key and not secret_key:
        access_key, secret_key = os.environ.get(ACCESS_KEY_VARIABLE, ""), os.environ.get(SECRET_KEY_VARIABLE, "")
    return Credentials(access_key, secret_key) if access_key or secret_key else None


class SignedChannel:
    """What stubs need of a channel; every call carries the time and its signature."""

    def __init__(self, channel: grpc.aio.Channel, credentials: Credentials, clock: Clock) -> None:
        """Sign what goes over `channel`."""
        self._channel = channel
        self._credentials = credentials
        self._clock = clock

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        """What makes methods of a kind: unary_unary, unary_stream, stream_unary or stream_stream."""
        make = getattr(self._channel, kind)
        return lambda *how, **options: self._signing(make(*how, **options))

    def _signing(self, method: Any) -> Callable[..., Any]:
        def call(*request: Any, **options: Any) -> Any:
            now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
            headers = signed_headers(self._credentials.access_key, self._credentials.secret_key, now)
            metadata = (*(options.pop("metadata", None) or ()), *headers)
            return method(*request, metadata=metadata, **options)

        return call
