"""Bodies as values of a type, by the type that a function asks for.

    bytes                       the body itself
    str                         UTF-8
    pyarrow.Table               Arrow's IPC stream
    pydantic models             JSON, by pydantic
    everything else             JSON, by msgspec: Struct, dataclass, TypedDict, dict, list, int, Any, ...

What is not bytes, str or a table is checked against its type when it is read.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class Undecodable(Exception):
    """A body is not what its handler takes; trying again would not help."""


@dataclass(frozen=True, slots=True)
class BodyCodec(Generic[T]):
    """How values of one type become bodies, and the other way round."""

    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    """Errors: Undecodable."""


def codec_of(kind: Any) -> BodyCodec[Any]:
    """The codec of a type. Errors: TypeError for what neither library can read."""
    if kind is bytes:
        return BodyCodec(bytes, bytes)
    if kind is str:
        return BodyCodec(str.encode, _telling(lambda body: body.decode()))
    if _is_of(kind, "pyarrow", "Table"):
        return _arrow()
    if _is_of(kind, "pydantic", "BaseModel"):
        return BodyCodec(lambda value: value.model_dump_json().encode(), _telling(kind.model_validate_json))
    return BodyCodec(msgspec.json.Encoder().encode, _telling(msgspec.json.Decoder(kind).decode))


def _is_of(kind: Any, module: str, name: str) -> bool:
    """Whether a type is that one of a library or derived from it; who has such a type has imported the library."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(kind, type) and issubclass(kind, getattr(loaded, name))


_UNREADABLE = (ValueError, OSError, KeyError, NotImplementedError, RecursionError)
"""What these libraries raise for bytes: msgspec also when they nest too deeply, Arrow whatever it likes."""


def _telling(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    def told(body: bytes) -> T:
        try:
            return decode(body)
        except _UNREADABLE as error:
            raise Undecodable(f"{type(error).__name__}: {error}") from error

    return told


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
        table.validate(full=True)  # Arrow believes offsets that it is told: reading such a table would end the process
        return table

    return BodyCodec(encode, _telling(decode))
