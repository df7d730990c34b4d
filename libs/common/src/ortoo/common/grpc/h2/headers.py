"""The headers of calls, and requests that clients repeat, recognized by their bytes before a call is made."""

from collections.abc import Mapping
from functools import lru_cache
from itertools import compress
from operator import ne
from typing import Final, Protocol

from ortoo.common.grpc.h2.framing import (
    CONTENT_TYPE,
    Headers,
    Metadata,
    read_metadata,
    timeout_s,
)
from ortoo.common.grpc.layers.polls import Polls
from ortoo.common.grpc.layers.repeats import RepeatedAnswers

FIELD_BYTES = 32
"""The number of bytes that HTTP/2 adds to the size of a field."""
REPEATED_HEADERS_MAX: Final = 4 << 10
"""Requests with longer headers are served as usual."""
BINARY: Final = b"-bin"


class CallHeaders:
    """The headers of a call. Of consecutive calls of a connection, only values that differ are read."""

    __slots__ = ("_fields", "_places", "error", "is_grpc", "metadata", "path", "size_bytes", "text", "timeout_s")

    def __init__(self, headers: Headers) -> None:
        self._fields = headers
        self.path = ""
        self.timeout_s: float | None = None
        """The time that the caller waits; None = without end."""
        self.metadata: Metadata = ()
        self.error = ""
        """Why the headers are invalid; empty if they are valid."""
        self.size_bytes = sum(len(key) + len(value) + FIELD_BYTES for key, value in headers)
        """The size by HTTP/2's rules."""
        content_type = method = b""
        for key, value in headers:
            if key == b":path":
                self.path = value.decode("utf-8", "replace")
            elif key == b":method":
                method = value
            elif key == b"content-type":
                content_type = value
            elif key == b"grpc-timeout":
                self.timeout_s = timeout_s(value)
                if self.timeout_s is None:
                    self.error = "the header grpc-timeout is invalid; send up to 8 digits and a unit, such as 100m"
        try:
            self.metadata = read_metadata(headers)
        except ValueError as error:
            self.error = str(error)
        self.text = {key: value for key, value in self.metadata if isinstance(value, str)}
        """The text values of the metadata. Other calls share them, so they must not be changed."""
        self.is_grpc = method == b"POST" and content_type.startswith(CONTENT_TYPE)
        names = [key for key, _ in headers]
        is_usual = self.is_grpc and not self.error and len(set(names)) == len(names) and BINARY not in b" ".join(names)
        self._places = {key.encode(): at for at, (key, _) in enumerate(self.metadata)} if is_usual else None
        """The place of each metadata's name; None if the next headers have to be read as a whole."""

    def next(self, headers: Headers) -> "CallHeaders":
        """The headers of the next call of the connection."""
        fields, places = self._fields, self._places
        if places is None or len(headers) != len(fields):
            return self if headers == fields else CallHeaders(headers)
        changed = [*compress(zip(headers, fields, strict=True), map(ne, headers, fields))]
        if not changed:
            return self
        found: CallHeaders = object.__new__(CallHeaders)
        found._fields, found._places, found.error, found.is_grpc = headers, places, "", True
        found.path, found.timeout_s, found.size_bytes = self.path, self.timeout_s, self.size_bytes
        metadata, found.text = list(self.metadata), self.text.copy()
        for (name, value), (known_name, known) in changed:
            if name != known_name:
                return CallHeaders(headers)
            found.size_bytes += len(value) - len(known)
            if (place := places.get(name)) is not None:
                key, _ = metadata[place]
                text = found.text[key] = value.decode("utf-8", "replace")
                metadata[place] = key, text
            elif name == b":path":
                found.path = value.decode("utf-8", "replace")
            elif name != b"grpc-timeout" or (limit_s := timeout_s(value)) is None:
                return CallHeaders(headers)
            else:
                found.timeout_s = limit_s
        found.metadata = tuple(metadata)
        return found


class RawHeaders:
    """The text values of the headers of a request. A value is decoded when it is read."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Mapping[bytes, bytes]) -> None:
        self._raw = raw

    def get(self, name: str, default: str, /) -> str:
        """The value of a header, or `default`."""
        found = self._raw.get(name.encode())
        return default if found is None else found.decode("utf-8", "replace")


class Peer(Protocol):
    """The connection of a request."""

    peer: str
    auth_context: dict[str, list[bytes]]


class RepeatedRequest:
    """A request whose headers have arrived, to a method that may need no call for it; also its caller."""

    __slots__ = ("_connection", "headers", "method", "stream_id", "timeout_s")

    def __init__(
        self,
        stream_id: int,
        headers: RawHeaders,
        timeout_s: float | None,
        method: RepeatedAnswers | Polls,
        connection: Peer,
    ) -> None:
        self.stream_id = stream_id
        self.headers = headers
        self.timeout_s = timeout_s
        """The time that the caller waits; None = without end."""
        self.method = method
        self._connection = connection

    def peer(self) -> str:
        """The address of the caller, as gRPC writes it."""
        return self._connection.peer

    def auth_context(self) -> dict[str, list[bytes]]:
        """The TLS properties of the caller."""
        return self._connection.auth_context


class RepeatedRequests:
    """Finds requests that may repeat, by the paths of their methods."""

    def __init__(self) -> None:
        self._methods: dict[bytes, RepeatedAnswers | Polls] = {}

    def add(self, path: str, method: RepeatedAnswers | Polls) -> None:
        """Recognize the requests of a method."""
        self._methods[path.encode()] = method

    def find(self, stream_id: int, headers: Headers, connection: Peer) -> RepeatedRequest | None:
        """The request with these headers if it may repeat; None if it has to be served as usual."""
        method = None
        for name, value in headers:
            if name == b":path":
                method = self._methods.get(value)
                break
        if method is None or not _is_usual(raw := dict(headers), headers):
            return None
        timeout, limit_s = raw.get(b"grpc-timeout"), None
        if timeout is not None and (limit_s := timeout_s(timeout)) is None:
            return None
        return RepeatedRequest(stream_id, RawHeaders(raw), limit_s, method, connection)


def _is_usual(raw: Mapping[bytes, bytes], headers: Headers) -> bool:
    """Whether the headers are short, and no name contains that of binary values. They need no further checks."""
    names, content_type = b" ".join(raw), raw.get(b"content-type", b"")
    return (
        raw.get(b":method") == b"POST"
        and (content_type == CONTENT_TYPE or content_type.startswith(CONTENT_TYPE))
        and len(raw) == len(headers)
        and len(names) + len(b"".join(raw.values())) <= REPEATED_HEADERS_MAX
        and not _has_binary(names)
    )


@lru_cache(maxsize=64)
def _has_binary(names: bytes) -> bool:
    """Whether a name is that of a binary value. Most clients send the same names with each request."""
    return BINARY in names
