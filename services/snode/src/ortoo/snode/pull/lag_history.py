"""The lag of a group over the last hour, from the samples that enodes record."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ortoo.common.errors import OrtooError, Unsupported
from ortoo.common.groups.group_topics import RETRY_PREFIX
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.watch import DirectoryWatch
from ortoo.snode.enodes.lag_samples import LagSamples
from ortoo.snode.enodes.link import EnodeLinks


@dataclass(frozen=True, slots=True)
class LagSample:
    """The lag of a group at one time."""

    at_ms: int
    lag_messages: int
    retention_left_ms: int | None = None
    """Time until retention reaches the oldest unfinished message; None = not known, or not at all."""
    is_incomplete: bool = False
    """Whether an enode took no sample at this time."""


@dataclass(frozen=True, slots=True)
class GroupLagHistory:
    """The samples of a group, oldest first."""

    samples: Sequence[LagSample]
    interval_ms: int
    unreachable_enodes: Sequence[str]
    """Enodes that could not be reached, or that are of an older version."""
    is_partial: bool
    """Whether an enode has too many series, and does not record all of them."""


class LagHistoryReader:
    """Asks enodes for their samples, and adds them."""

    def __init__(self, directory: DirectoryCache, watch: DirectoryWatch, links: EnodeLinks) -> None:
        self._directory = directory
        self._watch = watch
        self._links = links

    async def read(self, group: str, topics: Collection[str], from_ms: int) -> GroupLagHistory:
        """The lag of a group in these topics and in its retries, from `from_ms` on. Topics may be missing."""
        await self._watch.find_lite_topics(topics)
        named = {self._directory.find_topic(name) for name in (*topics, f"{RETRY_PREFIX}{group}")}
        topic_ids = {one.topic_id for one in named if one is not None}
        enodes = sorted(one.name for one in self._directory.enodes())
        answers = await self._links.ask_all(
            enodes, lambda link: link.list_lag_samples(group, topic_ids, from_ms), is_tolerated=_is_tolerated
        )
        return GroupLagHistory(
            add_samples(answers.values()),
            max((one.interval_ms for one in answers.values()), default=0),
            [one for one in enodes if one not in answers],
            any(one.is_partial for one in answers.values()),
        )


def add_samples(answers: Collection[LagSamples]) -> list[LagSample]:
    """The sums over enodes at each time at which one enode took a sample, oldest first."""
    lags: Counter[int] = Counter()
    left: dict[int, int] = {}
    enodes: Counter[int] = Counter()
    for one in answers:
        for at_ms, lag, left_ms in zip(one.sampled_at_ms, one.lag_messages, one.retention_left_ms, strict=True):
            lags[at_ms] += lag
            enodes[at_ms] += 1
            if left_ms >= 0:
                left[at_ms] = min(left_ms, left.get(at_ms, left_ms))
    return [LagSample(at_ms, lag, left.get(at_ms), enodes[at_ms] < len(answers)) for at_ms, lag in sorted(lags.items())]


def _is_tolerated(error: OrtooError) -> bool:
    """Whether the enode is left out: it is unreachable, or of an older version."""
    return error.retriable or isinstance(error, Unsupported)
