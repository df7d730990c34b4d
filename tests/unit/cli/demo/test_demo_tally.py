"""The demo's verdict about lost, duplicate and foreign messages."""

from collections import Counter

from ortoo.cli.demo.tally import GroupTally, content_hash

A, B, C = (content_hash(text, "UA", ("k",)) for text in (b"a", b"b", b"c"))


def tally(*deliveries: tuple[int, bytes]) -> GroupTally:
    """A group that received these (offset, content) pairs of one queue."""
    group = GroupTally("g")
    for offset, content in deliveries:
        group.received(("t", "e", 0, offset), content)
    return group


def test_complete_delivery_is_right() -> None:
    """Everything once is right."""
    verdict = tally((0, A), (1, B)).result(Counter([A, B]))
    assert verdict.is_right
    assert (verdict.delivered, verdict.duplicates, verdict.lost) == (2, 0, 0)


def test_redelivery_is_a_duplicate_and_still_right() -> None:
    """At-least-once delivery allows duplicates, and the table shows them."""
    verdict = tally((0, A), (0, A)).result(Counter([A]))
    assert verdict.is_right
    assert verdict.duplicates == 1


def test_equal_contents_at_two_places_are_two_messages() -> None:
    """A message stored twice is not hidden by its equal content."""
    assert not tally((0, A), (1, A)).result(Counter([A])).is_right
    assert tally((0, A), (1, A)).result(Counter([A, A])).is_right


def test_missing_and_foreign_messages_are_found() -> None:
    """One lost message and one that was never sent do not cancel out."""
    verdict = tally((0, A), (1, C)).result(Counter([A, B]))
    assert not verdict.is_right
    assert (verdict.lost, verdict.unexpected) == (1, 1)


def test_hash_covers_tag_and_keys() -> None:
    """A message whose tag or key changed on the way is another message."""
    hashes = {content_hash(b"a", tag, keys) for tag in ("UA", "DL", None) for keys in ((), ("k",), ("k", "l"))}
    assert len(hashes) == 9
