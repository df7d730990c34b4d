"""Finding the message that a client cannot receive."""

from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.groups.pop import PoppedBatch
from ortoo.common.records.batch import encode
from ortoo.common.records.message import Message
from ortoo.snode.cluster.routes import Queue
from ortoo.snode.pop.call import PoppedMessages, PopResult
from ortoo.snode.pop.receipt_handle import ReceiptHandle
from ortoo.snode.rocketmq.receive.unconfirmed_responses import ATTEMPTS_MAX, UnconfirmedResponses

ME = ("c", "g", "t")
FOUND = PoppedBatch(1, 5, 1, encode([Message(b"x")], now_ms=1), (8,), (1,))
ANSWER = PopResult([PoppedMessages(Queue("e", "t", 1), ReceiptHandle("e", "g", 7, 1, 5, 8, 1), FOUND)])


@given(st.integers(1, 32), st.data())
def test_one_bad_message_is_alone_after_few_answers_and_all_others_pass(count: int, data: st.DataObject) -> None:
    """Answers are halved until it is alone; then it has failed, once, and answers grow again."""
    doubts, bad = UnconfirmedResponses(), data.draw(st.integers(0, count - 1))
    left, answers, failed = list(range(count)), 0, []
    while left:
        some = left[: doubts.limit_messages(ME, 32)]
        answers += 1
        assert answers <= 3 * count + 6
        if bad not in some:
            doubts.on_delivered(ME, 32)
        elif doubts.on_undelivered(ME, len(some)):
            failed += some
        else:
            continue
        left = [one for one in left if one not in some]
    assert failed == [bad]


def test_an_answer_that_is_asked_for_again_was_not_taken_and_is_seen_to_once() -> None:
    """The stream's end may be noticed before the client retries, or after it."""
    doubts = UnconfirmedResponses()
    assert doubts.find_undelivered(ME, "a") is None
    doubts.add(ME, "a", PopResult([]))
    assert doubts.find_undelivered(ME, "a") is None  # it had no messages
    one = doubts.add(ME, "a", ANSWER)
    assert doubts.find_undelivered(ME, "a") == one.result
    assert not doubts.claim(ME, one)
    other = doubts.add(ME, "a", ANSWER)
    assert doubts.claim(ME, other)
    assert doubts.find_undelivered(ME, "a") is None
    assert doubts.claim(ME, doubts.add(ME, "", ANSWER))


def test_one_client_may_have_several_answers_at_once() -> None:
    """It polls the queues of each enode separately; one attempt says nothing about another."""
    doubts = UnconfirmedResponses()
    one = doubts.add(ME, "a", ANSWER)
    assert doubts.find_undelivered(ME, "b") is None
    other = doubts.add(ME, "b", ANSWER)
    assert doubts.claim(ME, one)
    assert doubts.find_undelivered(ME, "b") == other.result


def test_a_client_that_asks_for_ever_is_remembered_for_its_last_attempts() -> None:
    """The attempts of one client are bounded, and a broken answer is still remembered."""
    doubts = UnconfirmedResponses()
    first = doubts.add(ME, "0", ANSWER)
    for number in range(1, ATTEMPTS_MAX + 1):
        doubts.add(ME, str(number), ANSWER)
    assert doubts.find_undelivered(ME, "0") is None
    assert doubts.claim(ME, first)
    assert doubts.find_undelivered(ME, str(ATTEMPTS_MAX)) is not None
