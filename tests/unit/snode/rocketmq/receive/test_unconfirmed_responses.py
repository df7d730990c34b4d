"""Finding the message that a client cannot receive."""

from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.groups.pop import PoppedBatch
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.pop.processor import PopAnswer, PoppedMessages
from ortoo.snode.pop.receipt_handle import ReceiptHandle
from ortoo.snode.rocketmq.receive.unconfirmed_responses import ATTEMPTS_MAX, Doubts

ME = ("c", "g", "t")
FOUND = PoppedBatch(1, 5, 1, encode([Message(b"x")], now_ms=1), (8,), (1,))
ANSWER = PopAnswer([PoppedMessages(Queue("e", "t", 1), ReceiptHandle("e", "g", 7, 1, 5, 8, 1), FOUND)])


@given(st.integers(1, 32), st.data())
def test_one_bad_message_is_alone_after_few_answers_and_all_others_pass(count: int, data: st.DataObject) -> None:
    """Answers are halved until it is alone; then it has failed, once, and answers grow again."""
    doubts, bad = Doubts(), data.draw(st.integers(0, count - 1))
    left, answers, failed = list(range(count)), 0, []
    while left:
        some = left[: doubts.limit(ME, 32)]
        answers += 1
        assert answers <= 3 * count + 6
        if bad not in some:
            doubts.taken(ME, 32)
        elif doubts.broken(ME, len(some)):
            failed += some
        else:
            continue
        left = [one for one in left if one not in some]
    assert failed == [bad]


def test_an_answer_that_is_asked_for_again_was_not_taken_and_is_seen_to_once() -> None:
    """The stream's end may be noticed before the client retries, or after it."""
    doubts = Doubts()
    assert doubts.untaken(ME, "a") is None
    doubts.given(ME, "a", PopAnswer([]))
    assert doubts.untaken(ME, "a") is None  # it had no messages
    one = doubts.given(ME, "a", ANSWER)
    assert doubts.untaken(ME, "a") == one.answer
    assert not doubts.is_still(ME, one)
    other = doubts.given(ME, "a", ANSWER)
    assert doubts.is_still(ME, other)
    assert doubts.untaken(ME, "a") is None
    assert doubts.is_still(ME, doubts.given(ME, "", ANSWER))


def test_one_client_may_have_several_answers_at_once() -> None:
    """It polls the queues of each enode separately; one attempt says nothing about another."""
    doubts = Doubts()
    one = doubts.given(ME, "a", ANSWER)
    assert doubts.untaken(ME, "b") is None
    other = doubts.given(ME, "b", ANSWER)
    assert doubts.is_still(ME, one)
    assert doubts.untaken(ME, "b") == other.answer


def test_a_client_that_asks_for_ever_is_remembered_for_its_last_attempts() -> None:
    """The attempts of one client are bounded, and a broken answer is still remembered."""
    doubts = Doubts()
    first = doubts.given(ME, "0", ANSWER)
    for number in range(1, ATTEMPTS_MAX + 1):
        doubts.given(ME, str(number), ANSWER)
    assert doubts.untaken(ME, "0") is None
    assert doubts.is_still(ME, first)
    assert doubts.untaken(ME, str(ATTEMPTS_MAX)) is not None
