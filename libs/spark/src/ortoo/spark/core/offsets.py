"""Offsets of many queues as one value, and as the JSON of Spark's checkpoint.

    {"v": 1, "q": {"orders": {"enode-0": {"0": 17, "1": 12}}}, "e": {"orders": "00c0ffee00c0ffee"}}

`q` holds the next offset of each queue. `e` holds each topic's id, which differs if the topic was deleted and created
again. `s` holds the start of a query's first batch, as such a value; only the end of that batch has it. Spark compares
offsets as texts. Keys are therefore sorted, so that equal offsets have equal texts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ortoo.client import Queue
from ortoo.common.errors import Invalid, Unsupported

FORMAT: Final = 1
EARLIEST: Final = -2
LATEST: Final = -1


@dataclass(frozen=True)
class SourceOffsets:
    """The next offset of each queue, and the id of each topic."""

    queues: Mapping[Queue, int] = field(default_factory=dict)
    topic_ids: Mapping[str, int] = field(default_factory=dict)
    start: "SourceOffsets | None" = field(default=None, compare=False)
    """The start of the first batch of a query, in the end of this batch. The checkpoint has it nowhere else."""

    def to_json(self) -> dict[str, Any]:
        """These offsets as a JSON value for Spark's checkpoint."""
        tree: dict[str, dict[str, dict[str, int]]] = {}
        for queue in sorted(self.queues):
            tree.setdefault(queue.topic, {}).setdefault(queue.enode, {})[str(queue.queue_id)] = self.queues[queue]
        ids = {topic: f"{self.topic_ids[topic]:016x}" for topic in sorted(self.topic_ids)}
        start = {} if self.start is None else {"s": self.start.to_json()}
        return {"v": FORMAT, "q": tree, "e": ids} | start

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> "SourceOffsets":
        """Parse the result of `to_json`. Errors: Unsupported for a newer format, Invalid for any other value."""
        if value.get("v") != FORMAT:
            raise Unsupported(f"offsets have format {value.get('v')!r}, expected {FORMAT}; upgrade ortoo-spark")
        queues = parsed_tree(value.get("q", {}), "the checkpoint's offsets")
        start = cls.of_json(value["s"]) if "s" in value else None
        return cls(queues, {topic: int(text, 16) for topic, text in value.get("e", {}).items()}, start)

    @classmethod
    def is_json(cls, value: Any) -> bool:
        """Whether a value comes from `to_json`; otherwise it may be a tree for `parsed_tree`.

        Topics may be named `v` and `q`, like the keys in the result of `to_json`. Therefore the type of `v` is checked.
        """
        return isinstance(value, Mapping) and type(value.get("v")) is int


def parsed_tree(value: Any, field_name: str) -> dict[Queue, int]:
    """Parse a tree such as `{"topic": {"enode": {"0": 17}}}` to an offset for each queue.

    Errors: Invalid with `field_name` and the wrong entry.
    """
    found: dict[Queue, int] = {}
    for topic, enodes in _object(value, field_name, "topics").items():
        for enode, numbers in _object(enodes, field_name, f"enodes of {topic}").items():
            for queue_id, offset in _object(numbers, field_name, f"queues of {topic} on {enode}").items():
                if not str(queue_id).isdecimal():
                    raise Invalid(
                        f"{queue_id!r} is not a queue id of {topic} on {enode}; expected 0, 1, ...", field=field_name
                    )
                if not isinstance(offset, int) or isinstance(offset, bool) or offset < EARLIEST:
                    raise Invalid(
                        f"{offset!r} is not an offset for queue {queue_id} of {topic} on {enode}; expected 0 or more, "
                        "-1 (latest) or -2 (earliest)",
                        field=field_name,
                    )
                found[Queue(topic, enode, int(queue_id))] = offset
    return found


def _object(value: Any, field_name: str, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Invalid(
            f'the {what} are {value!r}, expected an object such as `{{"orders": {{"enode-0": {{"0": 17}}}}}}`',
            field=field_name,
        )
    return value
