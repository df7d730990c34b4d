"""The encoding of state changes, generated from their declarations: each field's annotation is its type in the log.

A change is `kind (u8), length (u32), body`. A body has these parts, each in the order of the fields:

1. the numbers,
2. the number of rows or column entries (u32),
3. the lengths of all texts except the last (u16 each),
4. whether an optional column is present (u8),
5. rows, columns and texts.

Numbers are little-endian.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_type_hints

from ortoo.common.errors import Unsupported

VERSION = 1
KIND_SKIPPABLE_MIN = 128
"""A reader skips unknown kinds from this number on, and refuses smaller ones."""

_HEAD = struct.Struct("<HI")
_CHANGE = struct.Struct("<BI")
HEAD_BYTES = _HEAD.size

U8 = Annotated[int, "B"]
U32 = Annotated[int, "I"]
U64 = Annotated[int, "Q"]
I64 = Annotated[int, "q"]
BoolField = Annotated[bool, "?"]


@dataclass(frozen=True, slots=True)
class Repeated:
    """The type of a field that is a tuple of rows, stored one after another."""

    codes: str
    """The `struct` codes of the numbers in a row."""
    fields: tuple[str, ...] = ()
    """The fields of a row that is an object; empty = a row is a tuple, or a number if it has one code."""
    row: Callable[..., object] = tuple
    """Makes an object of its fields."""


def repeated(row: type) -> Repeated:
    """The type of a field that is a tuple of objects of the dataclass `row`."""
    declared = get_type_hints(row, include_extras=True)
    return Repeated("".join(_declaration(hint)[1] for hint in declared.values()), tuple(declared), row)


@dataclass(frozen=True, slots=True)
class PackedColumn:
    """The type of a field of bytes that holds entries of equal size, encoded as in the log.

    All columns of a change have equally many entries.
    """

    codes: str = "q"
    """The `struct` codes of the numbers in an entry."""
    is_optional: bool = False
    """Whether it may be empty although the others are not."""

    @property
    def entry_bytes(self) -> int:
        """The length of one entry."""
        return struct.calcsize("<" + self.codes)


@dataclass(frozen=True, slots=True)
class StateChange:
    """Base of state changes. Each kind is a frozen dataclass whose fields have the types of this module."""

    def encoded(self) -> bytes:
        """The change's kind, length and body. `ChangeCodec` replaces this method by a generated one in each class."""
        raise TypeError(f"{type(self).__name__} is not in the table of kinds")


class ChangeCodec:
    """Encodes and decodes the changes of one table of kinds."""

    def __init__(self, kinds: Mapping[int, type[StateChange]]) -> None:
        """Compile an encoder and a decoder for each kind."""
        self._decoders: dict[int, Callable[[bytes], StateChange]] = {}
        for kind, change in kinds.items():
            source = _CodecSource(change)
            change.encoded = source.encoder(kind)  # type: ignore[method-assign, assignment]
            self._decoders[kind] = source.decoder()

    def decode(self, data: bytes) -> Iterator[StateChange]:
        """Decode the output of `encode_changes`. The caller has checked the CRC.

        Errors: Unsupported (a newer version, or an unknown change that must not be skipped). ValueError for a wrong
        length, which is a defect of the encoder.
        """
        version, count = _HEAD.unpack_from(data)
        if version != VERSION:
            raise Unsupported(f"state changes of version {version}; this process knows {VERSION}: upgrade it")
        at = _HEAD.size
        for _ in range(count):
            kind, length = _CHANGE.unpack_from(data, at)
            at += _CHANGE.size
            body = data[at : at + length]
            if len(body) != length:
                raise ValueError(f"a state change of {length} bytes, but {len(body)} are left")
            at += length
            decode = self._decoders.get(kind)
            if decode is not None:
                yield decode(body)
            elif kind < KIND_SKIPPABLE_MIN:
                raise Unsupported(f"state change of kind {kind}: upgrade this process")


def encode_changes(encoded: Sequence[bytes]) -> bytes:
    """Join encoded changes into the bytes of a frame: `version (u16), count (u32)`, changes."""
    return _HEAD.pack(VERSION, len(encoded)) + b"".join(encoded)


class _CodecSource:
    """Generates and compiles a fast encoder and decoder of one class, because every message passes through both."""

    def __init__(self, change: type[StateChange]) -> None:
        """Read the class's declaration."""
        self._scope: dict[str, Any] = {"change": change}
        self._codes = ""
        self._written: list[str] = []
        """Expressions for the head of a body."""
        self._read: list[str] = []
        """Names of the head's values."""
        self._arguments: list[str] = []
        """Expressions for the class's fields, from the values read."""
        self._encode: list[str] = []
        self._decode: list[str] = []
        self._tail: list[str] = []
        """Names of the parts behind the head."""
        declared = [(name, *_declaration(hint)) for name, hint in get_type_hints(change, include_extras=True).items()]
        for name, made_by, wire in declared:
            is_enum = isinstance(wire, str) and made_by not in (int, bool)
            self._arguments.append(f"{name}_of({name})" if is_enum else name)
            self._scope[f"{name}_of"] = made_by
            if isinstance(wire, str):
                self._put(wire, f"self.{name}", name)
        counted = [(name, wire) for name, _, wire in declared if isinstance(wire, Repeated | PackedColumn)]
        texts = [name for name, _, wire in declared if wire is None]
        for name, wire in counted[:1]:
            size = "" if isinstance(wire, Repeated) else f" // {wire.entry_bytes}"
            self._put("I", f"len(self.{name}){size}", "_count")
        for name in texts[:-1]:
            self._put("H", f"len({name})", f"{name}_bytes")
        for name, wire in counted:
            if isinstance(wire, Repeated):
                self._add_repeated(name, wire)
            else:
                self._add_column(name, wire)
        for name in texts:
            self._encode.append(f"{name} = self.{name}.encode()")
            self._slice(name, "len(body)" if name == texts[-1] else f"_at + {name}_bytes", "body[_at:_end].decode()")

    def encoder(self, kind: int) -> Callable[[StateChange], bytes]:
        """A function that encodes a change."""
        body_bytes = struct.calcsize("<" + self._codes)
        self._scope["pack"] = struct.Struct("<BI" + self._codes).pack
        length = " + ".join([str(body_bytes), *(f"len({one})" for one in self._tail)])
        packed = f"pack({', '.join([str(kind), length, *self._written])})"
        return self._compiled("encoded(self)", [*self._encode, f"return {' + '.join([packed, *self._tail])}"])

    def decoder(self) -> Callable[[bytes], StateChange]:
        """A function that decodes the body of a change."""
        head = struct.Struct("<" + self._codes)
        self._scope |= {"unpack": head.unpack_from if self._tail else head.unpack}
        lines = [f"{', '.join(self._read)}, = unpack(body)"]
        if self._tail:
            lines += [f"_at = {head.size}", *self._decode]
            lines += ["if _at != len(body): raise ValueError(f'a state change of {_at} bytes in {len(body)}')"]
        return self._compiled("decode(body)", [*lines, f"return change({', '.join(self._arguments)})"])

    def _put(self, code: str, written: str, read: str) -> None:
        self._codes += code
        self._written.append(written)
        self._read.append(read)

    def _add_repeated(self, name: str, rows: Repeated) -> None:
        packer = struct.Struct("<" + rows.codes)
        self._scope |= {f"pack_{name}": packer.pack, f"unpack_{name}": packer.iter_unpack, f"{name}_row": rows.row}
        packed, found = "*row", f"tuple(unpack_{name}(body[_at:_end]))"
        if rows.fields:
            packed = ", ".join(f"row.{one}" for one in rows.fields)
            found = f"tuple([{name}_row(*row) for row in unpack_{name}(body[_at:_end])])"
        elif packer.unpack(bytes(packer.size))[1:] == ():
            packed, found = "row", f"tuple([row for row, in unpack_{name}(body[_at:_end])])"
        self._encode.append(f"{name} = b''.join([pack_{name}({packed}) for row in self.{name}])")
        self._slice(name, f"_at + {packer.size} * _count", found)

    def _add_column(self, name: str, column: PackedColumn) -> None:
        entries = "_count"
        if column.is_optional:
            self._put("?", f"bool(self.{name})", f"has_{name}")
            entries = f"_count * has_{name}"
        self._encode.append(f"{name} = self.{name}")
        self._slice(name, f"_at + {column.entry_bytes} * {entries}", "body[_at:_end]")

    def _slice(self, name: str, end: str, found: str) -> None:
        self._tail.append(name)
        self._decode += [f"_end = {end}", f"{name} = {found}", "_at = _end"]

    def _compiled(self, head: str, lines: Sequence[str]) -> Callable[..., Any]:
        exec("\n    ".join([f"def {head}:", *lines]), self._scope)
        function: Callable[..., Any] = self._scope[head.partition("(")[0]]
        return function


def _declaration(hint: Any) -> tuple[Any, Any]:
    """A field's Python type, and its type in the log: a code of `struct`, `Repeated`, `Column`, or None for a text."""
    return (str, None) if hint is str else get_args(hint)[:2]
