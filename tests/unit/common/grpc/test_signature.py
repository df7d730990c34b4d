"""Signatures are read and compared in the forms of all clients."""

import pytest

from ortoo.common.errors import Invalid
from ortoo.common.grpc.signature import (
    SignedCall,
    check_time,
    is_signed,
    read_signature,
    request_headers,
    sign,
    signed_at_ms,
)

DATE_TIME = "20240102T030405Z"
CALL = SignedCall("AdminService/ListTopics", b"request")
DIGEST = "98ae5f616e4d0c394a39d7986917e90944b28995"


@pytest.mark.parametrize("digest", [DIGEST, DIGEST.upper()])
@pytest.mark.parametrize("credential", ["ak1", "ak1//Rocketmq", "ak1/cn-hangzhou/RocketMQ"])
def test_every_clients_spelling_is_the_same_signature(credential: str, digest: str) -> None:
    """The digest may be of either case, and the access key may be followed by a region."""
    text = f"MQv2-HMAC-SHA1 Credential={credential}, SignedHeaders=x-mq-date-time, Signature={digest}"
    signature = read_signature(text)
    assert signature.access_key == "ak1"
    assert signature.digest.hex() == DIGEST == sign("sk1", DATE_TIME).hex()
    assert is_signed(signature, "sk1", DATE_TIME, CALL)
    assert not is_signed(signature, "sk2", DATE_TIME, CALL)
    assert not is_signed(signature, "sk1", DATE_TIME + " ", CALL)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MQv2-HMAC-SHA1",
        "MQv2-HMAC-SHA1 Credential=, Signature=00",
        "x Credential=ak1, Signature=zz",
        "Signature=00",
    ],
)
def test_what_is_no_signature_is_said(text: str) -> None:
    """A missing access key, or a digest that is not hexadecimal, is Invalid, and no other error."""
    with pytest.raises(Invalid):
        read_signature(text)


NOW_MS = signed_at_ms("20240102T030405Z")


@pytest.mark.parametrize(
    ("date_time", "is_good", "is_good_local"),
    [
        ("20240102T030405Z", True, True),
        ("20240102T030905Z", True, True),
        ("20240102T030906Z", False, False),
        ("20240102T025905Z", True, True),
        ("20240102T110405Z", False, True),
        ("20240102T084905Z", False, True),  # Nepal
        ("20240101T150405Z", False, True),
        ("20240101T143405Z", False, False),
        ("20240102T173405Z", False, False),
        ("20240102T111405Z", False, False),
        ("2024-01-02T11:04:05.123456789+08:00", True, True),
        ("2024-01-02T11:04:05+00:00", False, False),
        ("19990101T000000Z", False, False),
        ("hello", False, False),
        ("", False, False),
    ],
)
def test_the_time_counts_as_each_client_writes_it(date_time: str, *, is_good: bool, is_good_local: bool) -> None:
    """Five minutes in both directions; a compact time may be a local time, where that is allowed."""
    for local, good in ((False, is_good), (True, is_good_local)):
        if good:
            check_time(date_time, NOW_MS, 300_000, local=local)
        else:
            with pytest.raises(Invalid):
                check_time(date_time, NOW_MS, 300_000, local=local)


def test_a_signature_may_cover_method_and_request() -> None:
    """It is valid only for its time, method and request, and is pinned for clients of other versions."""
    (_, date_time), (_, authorization) = request_headers("ak1", "sk1", DATE_TIME, CALL)
    signature = read_signature(authorization)
    assert (date_time, signature.access_key, signature.covers_request) == (DATE_TIME, "ak1", True)
    assert signature.digest.hex() == "3a1cf5b518da75965296a8053d95fc452615c9708fa19be37137ff77973a946a"
    assert is_signed(signature, "sk1", DATE_TIME, CALL)
    for secret, time, call in (
        ("sk2", DATE_TIME, CALL),
        ("sk1", "20240102T030406Z", CALL),
        ("sk1", DATE_TIME, SignedCall("AdminService/DeleteTopic", b"request")),
        ("sk1", DATE_TIME, SignedCall("AdminService/ListTopics", b"")),
        ("sk1", DATE_TIME, SignedCall("AdminService/ListTopics", None)),
    ):
        assert not is_signed(signature, secret, time, call)
