"""Names of lite topics: the short one that clients say, and that of the topic in which its messages lie."""

import re

from apache.rocketmq.v2.definition_pb2 import Code
from ortoo.common.cluster.names import TOPIC_NAME_LENGTH_MAX
from ortoo.snode.rocketmq.protocol.codes import Refused

PREFIX = "%LMQ%|"
LENGTH_MAX = 64
_NAME = re.compile(r"[a-zA-Z0-9_-]+\Z")


def check_lite_topic(name: str) -> str:
    """A lite topic's name that may be used. Errors: Refused with ILLEGAL_LITE_TOPIC."""
    if len(name) > LENGTH_MAX or not _NAME.match(name):
        raise Refused(
            Code.ILLEGAL_LITE_TOPIC,
            f"{name[:80]!r} cannot be a lite topic; expected 1 to {LENGTH_MAX} letters, digits, _ and -",
        )
    return name


def stored_topic(parent: str, lite_topic: str) -> str:
    """The topic that holds a lite topic's messages. Errors: Refused when both names together are too long."""
    name = f"{PREFIX}{parent}|{check_lite_topic(lite_topic)}"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        room = TOPIC_NAME_LENGTH_MAX - len(PREFIX) - 1 - len(parent)
        raise Refused(
            Code.ILLEGAL_LITE_TOPIC,
            f"lite topic {lite_topic!r} has {len(lite_topic)} characters; below topic {parent} at most {room} fit",
        )
    return name


def lite_topic_of(stored: str) -> str:
    """The short name of the lite topic in a stored one's name."""
    return stored.rpartition("|")[2]
