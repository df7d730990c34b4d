"""Codecs between bodies and values, chosen by the annotated type.

* `bytes`: the body itself
* `str`: UTF-8
* `pyarrow.Table`: Arrow's IPC stream
* pydantic models: JSON, by pydantic
* all other types (Struct, dataclass, TypedDict, dict, list, int, Any, ...): JSON, by msgspec

Bodies of the last two kinds are validated against the type when they are decoded.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Undecodable(Exception):
    """Raised when a body cannot be decoded to the handler's type; a retry would not help."""


@dataclass(frozen=True, slots=True)
class BodyCodec(Generic[T]):
    """The functions that encode and decode values of one type."""

    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    """Errors: Undecodable."""


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
    return BodyCodec(msgspec.json.Encoder().encode, _checked(msgspec.json.Decoder(kind).decode))


def _is_subclass_of(kind: Any, module: str, name: str) -> bool:
    """Whether a type is this class of a library or derived from it, without importing the library."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(kind, type) and issubclass(kind, getattr(loaded, name))


_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, OSError, KeyError, NotImplementedError, RecursionError)
"""Exceptions of the libraries for invalid bodies. Those of msgspec are no ValueErrors in its older versions, and it
raises others for deep nesting. Arrow raises various kinds."""


def _checked(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    def checked(body: bytes) -> T:
        try:
            return decode(body)
        except _DECODE_ERRORS as error:
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
