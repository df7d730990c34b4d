"""The id of a message whose producer chose none: made of where it lies, so that everybody makes the same one."""


def message_id_text(topic_id: int, enode: str, queue_id: int, offset: int) -> str:
    """The id of the message at `offset` of a queue, such as "00c0ffee00c0ffee-enode-0-3-42"."""
    return f"{topic_id:016x}-{enode}-{queue_id}-{offset}"
