"""How a message that its client cannot take is found among others."""

from hypothesis import given
from hypothesis import strategies as st

from ortoo.snode.pop.popping import PopAnswer
from ortoo.snode.rocketmq.receive.doubts import Doubts

ME = ("c", "g", "t")


@given(st.integers(1, 32), st.data())
def test_one_bad_message_is_alone_after_few_answers_and_all_others_pass(count: int, data: st.DataObject) -> None:
    """B-105: halved until it stands alone; then it has failed, once, and answers grow again."""
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
    """The stream's end may be noticed before the client asks again, or after it."""
    doubts = Doubts()
    assert doubts.untaken(ME, "a") is None
    given_ = doubts.given(ME, "a", PopAnswer([]))
    assert doubts.untaken(ME, "a") is None  # there was nothing in it
    assert not doubts.is_still(ME, given_)
    assert doubts.is_still(ME, doubts.given(ME, "", PopAnswer([])))
