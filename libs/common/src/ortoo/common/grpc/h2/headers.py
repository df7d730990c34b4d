"""The headers of calls."""

from ortoo.common.grpc.h2.framing import CONTENT_TYPE, Headers, Metadata, read_metadata, timeout_s

FIELD_BYTES = 32
"""The number of bytes that HTTP/2 adds to the size of a field."""


class CallHeaders:
    """The headers of a call, read once for consecutive calls of a connection that have the same headers."""

    __slots__ = ("error", "is_grpc", "metadata", "path", "size_bytes", "text", "timeout_s")

    def __init__(self, headers: Headers) -> None:
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
