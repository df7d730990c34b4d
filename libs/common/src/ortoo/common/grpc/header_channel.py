"""A channel whose calls carry headers that are made for each: a signature, a proof."""

from collections.abc import Callable
from typing import Any, cast

import grpc

Headers = tuple[tuple[str, str], ...]
HeadersOf = Callable[[str, bytes | None], Headers]
"""Makes the headers of a call by its path, "/ortoo.v1.AdminService/ListTopics", and its request; None for a stream."""


def with_headers(channel: grpc.aio.Channel, headers_of: HeadersOf) -> grpc.aio.Channel:
    """What stubs need of a channel; a stream gets its headers once, when it is opened."""
    return cast("grpc.aio.Channel", _HeaderChannel(channel, headers_of))


class _HeaderChannel:
    """The other channel, but for how methods are made."""

    def __init__(self, channel: grpc.aio.Channel, headers_of: HeadersOf) -> None:
        self._channel = channel
        self._headers_of = headers_of

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._channel, name)
        if name in ("unary_unary", "unary_stream"):
            return self._making(found)
        return self._making_streams(found) if name in ("stream_unary", "stream_stream") else found

    def _making(self, make: Any) -> Callable[..., Any]:
        def made(path: str, request_serializer: Callable[[Any], bytes], *how: Any, **options: Any) -> Any:
            method = make(path, bytes, *how, **options)  # requests are written here, for the headers may be about them

            def call(request: Any, *, metadata: Any = None, **rest: Any) -> Any:
                data = request_serializer(request)
                return method(data, metadata=(*(metadata or ()), *self._headers_of(path, data)), **rest)

            return call

        return made

    def _making_streams(self, make: Any) -> Callable[..., Any]:
        def made(path: str, *how: Any, **options: Any) -> Any:
            method = make(path, *how, **options)

            def call(*requests: Any, metadata: Any = None, **rest: Any) -> Any:
                return method(*requests, metadata=(*(metadata or ()), *self._headers_of(path, None)), **rest)

            return call

        return made
