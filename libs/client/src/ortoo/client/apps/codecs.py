"""Codecs between bodies and values, chosen by the annotated type.

* `bytes`: the body itself
* `str`: UTF-8
* `pyarrow.Table`: Arrow's IPC stream
* pydantic models: JSON, by pydantic
* classes with `avro_schema`: Avro without its schema
* classes that protoc generated: protobuf's binary encoding
* all other types (Struct, dataclass, TypedDict, dict, list, int, Any, ...): JSON, by msgspec

JSON and Avro are validated against the type when they are decoded. Avro and protobuf name the schema of a body in the
property `SCHEMA_ID`.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from ortoo.client.apps.avro import schema_of

T = TypeVar("T")
SCHEMA_ID = "SCHEMA_ID"
"""The property with the id of a body's schema: Avro's fingerprint, or the full name of a protobuf message."""


class Undecodable(Exception):
    """Raised when a body cannot be decoded to the handler's type; a retry would not help."""


@dataclass(frozen=True, slots=True)
class BodyCodec(Generic[T]):
    """The functions that encode and decode values of one type."""

    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    """Errors: Undecodable."""
    schema_id: str = ""
    """The id of the schema of encoded bodies; empty = the encoding has none."""
    decoders: Mapping[str, Callable[[bytes], T]] = field(default_factory=dict)
    """Other schemas whose bodies can be read, by their ids."""

    def read(self, body: bytes, schema_id: str) -> T:
        """Decode a body with this schema id; empty = it was sent without one. Errors: Undecodable."""
        if not (schema_id and self.schema_id) or schema_id == self.schema_id:
            return self.decode(body)
        decode = self.decoders.get(schema_id)
        if decode is None:
            known = ", ".join((self.schema_id, *self.decoders))
            raise Undecodable(f"the body has the schema {schema_id[:200]}, and this program reads only {known}")
        return decode(body)

    def properties(self) -> dict[str, str]:
        """The properties of a message with an encoded body."""
        return {SCHEMA_ID: self.schema_id} if self.schema_id else {}


def codec_of(kind: Any) -> BodyCodec[Any]:
    """The codec of a type. Errors: TypeError for a type that msgspec cannot decode."""
    if kind is bytes:
        return BodyCodec(bytes, bytes)
    if kind is str:
        return BodyCodec(str.encode, _checked(lambda body: body.decode()))
    if _is_subclass_of(kind, "pyarrow", "Table"):
        return _arrow()
    if _is_subclass_of(kind, "pydantic", "BaseModel"):
        return BodyCodec(lambda value: value.model_dump_json().encode(), _checked(kind.model_validate_json))
    if _is_subclass_of(kind, "google.protobuf.message", "Message"):
        return BodyCodec(
            lambda value: value.SerializeToString(), _checked(kind.FromString, Exception), kind.DESCRIPTOR.full_name
        )
    if (avro := schema_of(kind)) is not None:
        decoders = {one: _checked(avro.decoder(kind, one), Exception) for one in avro.known_ids}
        return BodyCodec(avro.encode, decoders.pop(avro.id), avro.id, decoders)
    return BodyCodec(msgspec.json.Encoder().encode, _checked(msgspec.json.Decoder(kind).decode))


def _is_subclass_of(kind: Any, module: str, name: str) -> bool:
    """Whether a type is this class of a library or derived from it, without importing the library."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(kind, type) and issubclass(kind, getattr(loaded, name))


_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, OSError, KeyError, NotImplementedError, RecursionError)
"""Exceptions of the libraries for invalid bodies. Those of msgspec are no ValueErrors in its older versions, and it
raises others for deep nesting. Arrow raises various kinds."""


def _checked(
    decode: Callable[[bytes], T], errors: type[Exception] | tuple[type[Exception], ...] = _DECODE_ERRORS
) -> Callable[[bytes], T]:
    """`decode` with Undecodable for these errors. fastavro and protobuf raise various kinds."""

    def checked(body: bytes) -> T:
        try:
            return decode(body)
        except errors as error:
            raise Undecodable(f"{type(error).__name__}: {error}") from error

    return checked


def _arrow() -> BodyCodec[Any]:
    import pyarrow as pa

    def encode(table: Any) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())

    def decode(body: bytes) -> Any:
        with pa.ipc.open_stream(body) as reader:
            table = reader.read_all()
        table.validate(full=True)  # Arrow trusts offsets in the body; reading invalid ones would crash the process
        return table

    return BodyCodec(encode, _checked(decode))
