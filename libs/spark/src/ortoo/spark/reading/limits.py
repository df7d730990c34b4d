"""How much of what is new one streaming batch takes: a pure division of a limit over queues."""

from collections.abc import Mapping

from ortoo.client import Queue


def limited(start: Mapping[Queue, int], latest: Mapping[Queue, int], messages_max: int) -> dict[Queue, int]:
    """End offsets so that all queues together give at most `messages_max` messages.

    Each queue gets its part in proportion to what waits in it, a queue where something waits at least one message while
    there are enough to give, the rest goes to the largest fractions. The sum is exact.
    """
    waiting = {queue: max(end - start.get(queue, end), 0) for queue, end in sorted(latest.items())}
    total = sum(waiting.values())
    if total <= messages_max:
        return dict(latest)
    filled = [queue for queue, count in waiting.items() if count]
    ends = {queue: latest[queue] - waiting[queue] for queue in latest}
    if messages_max <= len(filled):
        # Too few for one each: the longest lines first, so that none waits for ever.
        for queue in sorted(filled, key=lambda q: (-waiting[q], q))[:messages_max]:
            ends[queue] += 1
        return ends
    rest = messages_max - len(filled)
    shares = {queue: rest * (waiting[queue] - 1) / max(total - len(filled), 1) for queue in filled}
    given = {queue: 1 + int(shares[queue]) for queue in filled}
    for queue in sorted(filled, key=lambda q: (int(shares[q]) - shares[q], q)):
        if sum(given.values()) >= messages_max:
            break
        if given[queue] < waiting[queue]:
            given[queue] += 1
    for queue, count in given.items():
        ends[queue] += count
    return ends
