"""System properties: servers write them into copies, and take them from no client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.arrays.batch_check import check
from ortoo.common.errors import Invalid
from ortoo.common.records.batch import Message, encode
from ortoo.common.records.text_rules import (
    COPY_LIMITS,
    DEAD_LETTER_PROPERTIES,
    PRODUCER_LIMITS,
    SYSTEM_PROPERTIES,
    is_system_property,
)
from ortoo.snode.rocketmq.protocol.names import RESERVED_PROPERTIES

NAMES = [*sorted(SYSTEM_PROPERTIES), DEAD_LETTER_PROPERTIES, "DLQ_REASON", "DLQ_ORIGIN_TOPIC", "DLQ_anything"]
LIKE_THEM = ["RETRY_TOPICS", "XRETRY_TOPIC", "ORIGIN_", "dlq_reason", "A_DLQ_", "RECONSUME_TIME", "retry_topic"]


@pytest.mark.parametrize("name", NAMES)
def test_a_client_sends_no_system_property(name: str) -> None:
    """The library refuses the message, and the snode a batch of another library. Errors have name and remedy."""
    message = Message(b"a", properties={"mine": "1", name: "v"})
    for refuse in (message.check, lambda: encode([Message(b"b"), message], now_ms=1)):
        with pytest.raises(Invalid, match=f"property {name}; remove it"):
            refuse()
    with pytest.raises(Invalid, match=f"property {name}; remove it") as error:
        check(encode([Message(b"b", properties={"ok": name}), message], now_ms=1, limits=COPY_LIMITS))
    assert error.value.field == "batch.records.properties.names.dictionary"


@given(st.lists(st.lists(st.sampled_from([*NAMES, *LIKE_THEM, "a", "ab"]), unique=True), min_size=1, max_size=4))
def test_the_snode_finds_exactly_the_names_of_the_table(names: list[list[str]]) -> None:
    """The check of the dictionary of names agrees with the table."""
    messages = [Message(b"a", properties=dict.fromkeys(of_message, "DLQ_")) for of_message in names]
    sealed = encode(messages, now_ms=1, limits=COPY_LIMITS)
    if any(is_system_property(name) for of_message in names for name in of_message):
        with pytest.raises(Invalid, match="only the servers write"):
            check(sealed)
    else:
        check(sealed)
        assert sealed == encode(messages, now_ms=1, limits=PRODUCER_LIMITS)


def test_a_received_message_is_sent_again_without_them() -> None:
    """All other fields stay, and a message without system properties is the same object."""
    message = Message(b"a", "t", ("k",), properties={"mine": "1", **dict.fromkeys(NAMES, "v")}, message_group="g")
    assert message.without_system_properties() == message.replace(properties={"mine": "1"})
    plain = message.without_system_properties()
    assert plain.without_system_properties() is plain


def test_names_of_rocketmq_stay_reserved_in_its_protocol_alone() -> None:
    """A native message may have a property `KEYS`."""
    native = {name for name in RESERVED_PROPERTIES if not is_system_property(name)}
    assert "KEYS" in native
    Message(b"a", properties=dict.fromkeys(native, "v")).check()
