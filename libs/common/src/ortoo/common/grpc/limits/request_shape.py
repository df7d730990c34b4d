"""The lists (repeated fields) of each method's requests, and the refusal of requests whose lists are too long.

    read = counted("/ortoo.v1.ProducerService/Publish", PublishRequest.FromString)
    request = read(data)                # raises DecodeError, or Invalid, which names the list

Decoding allocates a hundred bytes and more for an element that takes two bytes on the wire. A request of 8 MiB could
have four million elements. Therefore the elements of large requests are counted in the raw bytes. The lists of smaller
requests are measured after decoding.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import Default

from ortoo.common.grpc.bulk_field import BulkMessage
from ortoo.common.grpc.limits.element_limits import ELEMENTS_MAX
from ortoo.common.grpc.limits.raw_elements import RawElements, RawField, too_many_elements
from ortoo.common.grpc.messages import is_repeated

_TEXTS: Final = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_PACKED_BYTES: Final = {
    **dict.fromkeys((FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64, FieldDescriptor.TYPE_DOUBLE), 8),
    **dict.fromkeys((FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32, FieldDescriptor.TYPE_FLOAT), 4),
}


class RequestShape:
    """The lists of one type of request."""

    def __init__(self, descriptor: Descriptor) -> None:
        """Find the lists of the request type `descriptor`.

        Errors: KeyError if a list has no limit, RecursionError if a message contains itself.
        """
        self._lists: list[_List] = []
        self.elements = _elements(descriptor, (), self._lists)
        """The lists in the form that raw requests are checked with; None if the request type has no list."""
        self._short_bytes = self.elements.short_bytes if self.elements is not None else 0

    def check_lists(self, data: bytes, request: Any) -> None:
        """Refuse a request, decoded from `data`, with a list that is too long. Errors: Invalid, naming the list."""
        if len(data) > self._short_bytes:
            message = request.message if isinstance(request, BulkMessage) else request
            for one in self._lists:
                if len(data) > one.short_bytes:
                    one.check(message)


class _List:
    """One list of a request."""

    def __init__(self, above: Sequence[FieldDescriptor], name: str, field: RawField) -> None:
        """`above` is the path of fields from the request to the messages that contain the list."""
        self._above = [(one.name, is_repeated(one)) for one in above]
        self._name = name
        self._field = field
        self.short_bytes = field.short_bytes

    def check(self, request: Any) -> None:
        """Refuse a request if one of these lists is too long. Errors: Invalid."""
        holders = [request]
        for name, is_list in self._above:
            if is_list:
                holders = [inner for one in holders for inner in getattr(one, name)]
            else:
                holders = [getattr(one, name) for one in holders if one.HasField(name)]
        for holder in holders:
            if len(getattr(holder, self._name)) > self._field.elements_max:
                raise too_many_elements(self._field)


def counted(path: str, read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A function that counts the elements of a method's request, and decodes the request by `read`.

    `path` is like "/ortoo.v1.Service/Method". Errors: KeyError if a list has no limit. The function raises DecodeError,
    and Invalid, naming the list.
    """
    shape = shape_of(path)
    if shape is None or shape.elements is None:
        return read
    check, check_lists = shape.elements.check, shape.check_lists

    def counted_read(data: bytes) -> Any:
        is_checked = check(data)
        request = read(data)
        if not is_checked:
            check_lists(data, request)
        return request

    return counted_read


def beginning_check(path: str) -> Callable[[bytes], object]:
    """A function that refuses a method's request by its first bytes, if these have too many elements (Invalid)."""
    shape = shape_of(path)
    return bytes if shape is None or shape.elements is None else shape.elements.check_beginning


def shape_of(path: str) -> RequestShape | None:
    """The lists of a method's requests; None if no protobuf descriptor describes the method. Errors: KeyError."""
    service, _, method = path.removeprefix("/").rpartition("/")
    try:
        described = Default().FindServiceByName(service).methods_by_name[method]
    except KeyError:
        return None
    return _shape(described.input_type)


@cache
def _shape(descriptor: Descriptor) -> RequestShape:
    return RequestShape(descriptor)


def _elements(descriptor: Descriptor, above: tuple[FieldDescriptor, ...], lists: list[_List]) -> RawElements | None:
    """The lists of a message type and of its inner messages; each of them is also added to `lists`."""
    found: dict[int, RawField] = {}
    for field in descriptor.fields:
        way = (*above, field)
        inner = None if field.message_type is None else _elements(field.message_type, way, lists)
        if is_repeated(field) or inner is not None:
            raw = found[field.number] = RawField(
                path=".".join(one.name for one in way),
                elements_max=ELEMENTS_MAX[field.full_name] if is_repeated(field) else 0,
                weight=1 if field.type in _TEXTS else 2,
                is_packable=is_repeated(field) and field.type not in (*_TEXTS, FieldDescriptor.TYPE_MESSAGE),
                packed_bytes=_PACKED_BYTES.get(field.type, 0),
                inner=inner,
            )
            if is_repeated(field):
                lists.append(_List(above, field.name, raw))
    return RawElements(found) if found else None
