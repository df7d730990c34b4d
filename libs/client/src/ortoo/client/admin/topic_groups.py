"""The groups of a topic."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicGroups:
    """The groups of a topic, by name."""

    subscribed: tuple[str, ...]
    """Groups of which a member subscribes to the topic now."""
    with_offsets: tuple[str, ...]
    """Groups that have an offset in the topic, with or without members."""
