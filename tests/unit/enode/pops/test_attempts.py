"""Results of pops by attempt and request, and cancelled pops, against a model that forgets nothing."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.groups.pop import LeasePart, PoppedBatch
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.enode.pops.attempts import ATTEMPTS_REMEMBERED, CANCELLED_MAX, CANCELLED_RETENTION_S, PopAttempts

LEASE_STEP = 1_000
"""The increment of a lease's number when its messages are leased again."""
BATCH = encode([Message(b"x")], now_ms=1)
ATTEMPT_IDS = st.sampled_from(["a", "b"])
REQUEST_IDS = st.sampled_from(["1", "2", "3"])
STEPS = st.one_of(
    st.tuples(st.just("got"), ATTEMPT_IDS, REQUEST_IDS),
    st.tuples(st.just("again"), ATTEMPT_IDS, REQUEST_IDS),
    st.tuples(st.just("call off"), ATTEMPT_IDS, st.one_of(st.just(""), REQUEST_IDS)),
    st.tuples(st.just("wait"), st.just(""), st.just("")),
)


def popped(number: int, *offsets: int) -> PoppedBatch:
    """A batch of lease `number`."""
    return PoppedBatch(0, number, 1, BATCH, offsets or (number,), (1,) * len(offsets or (number,)))


def leased_again(part: LeasePart) -> LeasePart:
    """The part under another lease number."""
    return replace(part, number=part.number + LEASE_STEP)


def numbers(parts: list[LeasePart]) -> list[int]:
    """The lease numbers of parts, sorted."""
    return sorted(part.number for part in parts)


@given(st.lists(STEPS, max_size=40))
def test_each_message_is_its_last_requests_and_goes_back_once(steps: list[tuple[str, str, str]]) -> None:
    """Messages are remembered while their request may be cancelled, and released at most once."""
    attempts, now_s = PopAttempts(), 0.0
    owners: dict[int, tuple[str, str]] = {}
    called_off: dict[tuple[str, str], float] = {}
    for number, (what, attempt_id, request_id) in enumerate(steps):
        request = (attempt_id, request_id)
        mine = [one for one, owner in owners.items() if owner == request]
        all_of_it = [one for one, owner in owners.items() if owner[0] == attempt_id]
        if what == "wait":
            now_s += CANCELLED_RETENTION_S / 2
            attempts.expire_cancelled(now_s)
            called_off = {one: until_s for one, until_s in called_off.items() if until_s > now_s}
        elif what == "got":
            for one in mine:
                del owners[one]  # a request is answered once; a later result replaces the earlier one
            owners[number] = request
            attempts.record(request, [popped(number)])
        elif what == "again":
            again = numbers(attempts.take_over(request, leased_again))
            assert again == sorted(one + LEASE_STEP for one in all_of_it)
            owners = {one: owner for one, owner in owners.items() if owner[0] != attempt_id}
            owners.update(dict.fromkeys(again, request))
        else:
            expected = mine if request_id else all_of_it
            assert numbers(attempts.cancel(request, now_s)) == sorted(expected)
            for one in expected:
                del owners[one]
            called_off[request] = now_s + CANCELLED_RETENTION_S
        for asked in [(one, other) for one in "ab" for other in "123"]:
            assert attempts.is_cancelled(asked) == (asked in called_off or (asked[0], "") in called_off)
        assert attempts.is_idle == (not called_off)


def test_what_goes_back_is_named_by_ranges_and_what_is_gone_by_then_is_passed_over() -> None:
    """The released part is not exact."""
    attempts = PopAttempts()
    attempts.record(("a", "1"), [popped(7, 3, 4, 9)])
    assert attempts.cancel(("a", "1"), 0.0) == [LeasePart(0, 7, ((3, 2), (9, 1)), is_exact=False)]


def test_only_so_many_are_remembered_the_newest_ones() -> None:
    """Both results and cancelled requests."""
    attempts = PopAttempts()
    for number in range(ATTEMPTS_REMEMBERED + 1):
        attempts.record((str(number), ""), [popped(number)])
    attempts.record(("1", ""), [popped(1)])
    attempts.record(("new", ""), [popped(2)])
    assert attempts.take_over(("0", ""), leased_again) == []
    assert attempts.take_over(("2", ""), leased_again) == []
    assert numbers(attempts.take_over(("1", ""), leased_again)) == [1 + LEASE_STEP]
    for number in range(CANCELLED_MAX):
        attempts.cancel((str(number), "r"), 0.0)
    attempts.cancel(("0", "r"), 1.0)  # a repeated cancellation counts as new
    attempts.cancel(("new", "r"), 1.0)
    assert attempts.is_cancelled(("0", "r"))
    assert not attempts.is_cancelled(("1", "r"))
    assert attempts.is_cancelled(("2", "r"))
    attempts.expire_cancelled(CANCELLED_RETENTION_S)
    assert attempts.is_cancelled(("0", "r"))
    assert not attempts.is_cancelled(("2", "r"))
