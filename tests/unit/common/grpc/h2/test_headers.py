"""Headers of calls: those of the next call are read by what differs, with the same result as from the beginning."""

from hypothesis import example, given
from hypothesis import strategies as st

from ortoo.common.grpc.h2.framing import Headers
from ortoo.common.grpc.h2.headers import CallHeaders

USUAL: Headers = (
    (b":method", b"POST"),
    (b":path", b"/s.S/Call"),
    (b"content-type", b"application/grpc"),
    (b"grpc-timeout", b"3S"),
    (b"x-mq-client-id", b"one"),
)
NAMES = st.sampled_from(
    [b":method", b":path", b"content-type", b"grpc-timeout", b"te", b"x-mq-client-id", b"x-request-id", b"x-bin"]
)
VALUES = st.sampled_from(
    [b"POST", b"GET", b"/s.S/Call", b"/s.S/Other", b"application/grpc", b"text/html", b"3S", b"250m", b"3 hours",
     b"one", b"\xff\xfe", b"AAA=", b""]
)  # fmt: skip
CHANGES = st.lists(st.tuples(st.integers(0, len(USUAL) - 1), NAMES, VALUES), max_size=3)
ATTRIBUTES = [name for name in CallHeaders.__slots__ if not name.startswith("_")]


def changed(headers: Headers, changes: list[tuple[int, bytes, bytes]]) -> Headers:
    fields = list(headers)
    for at, name, value in changes:
        fields[at] = name, value
    return tuple(fields)


@example([[(3, b"grpc-timeout", b"3 hours")], [(3, b"grpc-timeout", b"250m")]])
@example([[(1, b":path", b"/s.S/Other")], [(4, b"x-mq-client-id", b"two")]])
@example([[(4, b"te", b"one")], [(4, b"te", b"")]])
@given(st.lists(CHANGES, max_size=5))
def test_the_next_headers_are_as_if_read_alone(calls: list[list[tuple[int, bytes, bytes]]]) -> None:
    """Whatever changed from call to call: values, names, the number of a name, validity."""
    headers, found = USUAL, CallHeaders(USUAL)
    for changes in calls:
        headers = changed(headers, changes)
        found, alone = found.next(headers), CallHeaders(headers)
        assert {name: getattr(found, name) for name in ATTRIBUTES} == {
            name: getattr(alone, name) for name in ATTRIBUTES
        }


def test_calls_do_not_share_what_differs() -> None:
    """Headers of a call that is still open stay as they are."""
    first = CallHeaders(USUAL)
    second = first.next(changed(USUAL, [(4, b"x-mq-client-id", b"two")]))
    assert (first.text, second.text) == ({"x-mq-client-id": "one"}, {"x-mq-client-id": "two"})
    assert (first.metadata, second.metadata) == ((("x-mq-client-id", "one"),), (("x-mq-client-id", "two"),))
    assert second.next(USUAL).timeout_s == 3.0
