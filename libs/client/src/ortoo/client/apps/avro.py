"""Avro bodies: a class is decorated with its schema, and needs the package `fastavro`.

A body has no schema in it. The property `SCHEMA_ID` has the fingerprint of the writer's schema: CRC-64-AVRO, as
hexadecimal digits. So a reader with a newer schema can resolve older bodies.
"""

import io
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from ortoo.common.errors import Invalid

Class = TypeVar("Class", bound=type)
AvroType = str | list[Any] | dict[Any, Any]
_BUILTINS = (bytes, datetime, date, time, Decimal, UUID)
"""Types that Avro's logical types have in Python."""


class AvroSchema:
    """The schema with which values of one class are written, and those with which bodies may have been written."""

    def __init__(self, schema: AvroType, older: Sequence[AvroType] = ()) -> None:
        """Parse the schemas. Errors: Invalid for a schema that is none, or without the package `fastavro`."""
        try:
            import fastavro
            from fastavro import _read_py
            from fastavro.schema import fingerprint, to_parsing_canonical_form
        except ImportError:
            raise Invalid("Avro bodies need fastavro: pip install 'ortoo-client[avro]'") from None
        try:
            parsed = [fastavro.parse_schema(one, named_schemas={}) for one in (schema, *older)]
            ids = [fingerprint(to_parsing_canonical_form(one), "CRC-64-AVRO") for one in parsed]
        except Exception as error:  # fastavro raises various kinds
            raise Invalid(f"the Avro schema is invalid: {error}", field="schema") from error
        if any(map(_has_items_without_bytes, parsed)):
            raise Invalid(
                "the Avro schema has an array whose items take no bytes: a small body could have any number of them. "
                "Give the items a field",
                field="schema",
            )
        # The reader in C has no limit for nesting: a body of a schema that contains itself could end the process.
        self._read = _read_py.schemaless_reader if any(map(_is_recursive, parsed)) else fastavro.schemaless_reader
        self._write = fastavro.schemaless_writer
        self._own = parsed[0]
        self.id: str = ids[0]
        self._of_writer = dict(zip(reversed(ids), reversed(parsed), strict=True))

    @property
    def known_ids(self) -> tuple[str, ...]:
        """The ids of the schemas whose bodies can be read, the newest first."""
        return tuple(reversed(self._of_writer))

    def encode(self, value: Any) -> bytes:
        """A value as a body. Errors: those of fastavro for a value that does not match the schema."""
        target = io.BytesIO()
        self._write(target, self._own, msgspec.to_builtins(value, builtin_types=_BUILTINS))
        return target.getvalue()

    def decoder(self, kind: Any, writer_id: str) -> Callable[[bytes], Any]:
        """A function that reads bodies written with the schema of this id as values of `kind`."""
        writer = self._of_writer[writer_id]

        def decode(body: bytes) -> Any:
            source = io.BytesIO(body)
            found = self._read(source, writer, self._own)
            if left := len(body) - source.tell():
                raise ValueError(f"{left} bytes follow the value: it was written with another schema")
            return msgspec.convert(found, kind, builtin_types=_BUILTINS)

        return decode


def _is_recursive(schema: Any, inside: frozenset[str] = frozenset()) -> bool:
    """Whether a parsed schema has a record that contains itself. `inside` are the names of the outer records."""
    match schema:
        case str():
            return schema in inside
        case list():
            return any(_is_recursive(one, inside) for one in schema)
        case {"type": "record" | "error", "name": name, "fields": fields}:
            return any(_is_recursive(one["type"], inside | {name}) for one in fields)
        case {"type": "array", "items": item} | {"type": "map", "values": item}:
            return _is_recursive(item, inside)
        case {"type": inner}:
            return _is_recursive(inner, inside)
    return False


def _has_items_without_bytes(schema: Any, named: dict[str, Any] | None = None) -> bool:
    """Whether a parsed schema has an array whose items may be encoded as no bytes. `named` are the known types."""
    named = {} if named is None else named
    match schema:
        case list():
            return any(_has_items_without_bytes(one, named) for one in schema)
        case {"type": "array", "items": items}:
            return _has_items_without_bytes(items, named) or _takes_no_bytes(items, named)
        case {"type": "map", "values": inner} | {"type": dict() | list() as inner}:
            return _has_items_without_bytes(inner, named)
        case {"type": "record" | "error", "name": name, "fields": fields}:
            named[name] = schema
            return any(_has_items_without_bytes(one["type"], named) for one in fields)
        case {"type": "fixed", "name": name}:
            named[name] = schema
    return False


def _takes_no_bytes(schema: Any, named: dict[str, Any]) -> bool:
    """Whether each value of a schema is encoded as no bytes."""
    match schema:
        case str():
            return schema == "null" or (schema in named and _takes_no_bytes(named[schema], named))
        case {"type": "record" | "error", "fields": fields}:
            return all(_takes_no_bytes(one["type"], named) for one in fields)
        case {"type": "fixed", "size": size}:
            return bool(size == 0)
        case {"type": "null"}:
            return True
        case {"type": dict() as inner}:
            return _takes_no_bytes(inner, named)
    return False  # a union has its index, an array its end, and all others a value


_schemas: dict[Any, AvroSchema] = {}


def avro_schema(schema: AvroType, *, older: Sequence[AvroType] = ()) -> Callable[[Class], Class]:
    """Encode values of the decorated class as Avro, by `schema`: a parsed JSON schema, as fastavro takes it.

    The class is a dataclass, a `Struct` or a `TypedDict` with the names of the schema's fields. `older` are schemas of
    bodies that may still arrive; Avro's rules resolve them. Errors: Invalid.
    """

    def decorate(kind: Class) -> Class:
        _schemas[kind] = AvroSchema(schema, older)
        return kind

    return decorate


def schema_of(kind: Any) -> AvroSchema | None:
    """The schema of a decorated class; None for any other type."""
    try:
        return _schemas.get(kind)
    except TypeError:  # a type that cannot be hashed
        return None
