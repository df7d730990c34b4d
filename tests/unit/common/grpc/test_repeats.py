"""Kept answers to calls that repeat: by request and layers, within limits, and while their handler confirms them."""

import pytest

from ortoo.common.grpc.layers.arrival import RepeatCaller
from ortoo.common.grpc.layers.layer import Layer, Method
from ortoo.common.grpc.layers.repeats import ENTRY_BYTES, ITEM_BYTES_MAX, Key, RepeatedAnswers

METHOD = Method("/t.Service/Call", "Service/Call", False, False, bytes, bytes)


class Somebody:
    """The caller of a call."""

    def __init__(self, **headers: str) -> None:
        self.headers = headers

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}


CALLER = Somebody()


class ByTenant(Layer):
    """Treats calls by a header."""

    def repeat_key(self, caller: RepeatCaller) -> bytes | None:
        return caller.headers.get("tenant", "").encode()


class Quiet(Layer):
    """Has no part in repeated calls, but counts them."""

    always_repeats = True

    def __init__(self) -> None:
        self.repeated = 0

    def on_repeated(self, method: Method) -> None:
        assert method is METHOD
        self.repeated += 1


def always(_: RepeatCaller) -> bool:
    return True


def key_of(answers: RepeatedAnswers, request: bytes, caller: Somebody = CALLER) -> Key:
    key = answers.key(caller, request)
    assert key is not None
    return key


def test_an_answer_holds_for_equal_calls_only() -> None:
    """Another request, and another header that a layer reads, have answers of their own."""
    quiet = Quiet()
    answers = RepeatedAnswers(METHOD, [quiet, ByTenant()])
    assert answers.answer(key_of(answers, b"1"), CALLER) is None
    answers.keep(key_of(answers, b"1"), b"one", always)
    assert answers.answer(key_of(answers, b"1"), CALLER) == b"one"
    assert answers.answer(key_of(answers, b"2"), CALLER) is None
    assert answers.answer(key_of(answers, b"1", Somebody(tenant="t")), Somebody(tenant="t")) is None
    assert quiet.repeated == 1


def test_a_layer_that_has_to_see_every_call() -> None:
    """It is the default, so that a new layer is never passed by."""
    assert RepeatedAnswers(METHOD, [Layer()]).key(CALLER, b"1") is None


def test_the_handler_decides_whether_an_answer_holds() -> None:
    """It sees the caller. An answer that does not hold for one caller may hold for another one."""
    answers = RepeatedAnswers(METHOD, [])
    key = key_of(answers, b"1")
    asked: list[str] = []

    def holds(caller: RepeatCaller) -> bool:
        asked.append(caller.headers.get("id", ""))
        return asked[-1] == "known"

    answers.keep(key, b"one", holds)
    assert answers.answer(key, Somebody(id="new")) is None
    assert answers.answer(key, Somebody(id="known")) == b"one"
    assert asked == ["new", "known"]


def test_a_newer_answer_replaces_the_older_one() -> None:
    """Its memory is counted once."""
    answers = RepeatedAnswers(METHOD, [], bytes_max=2 * (ENTRY_BYTES + 10))
    for number in range(10):
        answers.keep(key_of(answers, b"1"), b"%d" % number, always)
    answers.keep(key_of(answers, b"2"), b"two", always)
    assert answers.answer(key_of(answers, b"1"), CALLER) == b"9"
    assert len(answers) == 2


def test_the_memory_of_answers_is_limited() -> None:
    """The answer that was not used for longest is dropped."""
    answers = RepeatedAnswers(METHOD, [], bytes_max=3 * (ENTRY_BYTES + 2))
    for number in range(3):
        answers.keep(key_of(answers, b"%d" % number), b"x", always)
    assert answers.answer(key_of(answers, b"0"), CALLER) == b"x"
    answers.keep(key_of(answers, b"3"), b"x", always)
    found = [answers.answer(key_of(answers, b"%d" % number), CALLER) for number in range(4)]
    assert found == [b"x", None, b"x", b"x"]


@pytest.mark.parametrize("sizes", [(ITEM_BYTES_MAX + 1, 1), (1, ITEM_BYTES_MAX + 1)])
def test_large_requests_and_answers_are_not_kept(sizes: tuple[int, int]) -> None:
    """Only small ones can be sent at once."""
    answers = RepeatedAnswers(METHOD, [])
    request, answer = map(bytes, sizes)
    answers.keep(key_of(answers, request), answer, always)
    assert len(answers) == 0
