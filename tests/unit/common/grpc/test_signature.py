"""Signatures are read and compared as all clients make them."""

import pytest

from ortoo.common.errors import Invalid
from ortoo.common.grpc.signature import is_signed, read_signature, sign

DATE_TIME = "20240102T030405Z"
DIGEST = "98ae5f616e4d0c394a39d7986917e90944b28995"


@pytest.mark.parametrize("digest", [DIGEST, DIGEST.upper()])
@pytest.mark.parametrize("credential", ["ak1", "ak1//Rocketmq", "ak1/cn-hangzhou/RocketMQ"])
def test_every_clients_spelling_is_the_same_signature(credential: str, digest: str) -> None:
    """The digest may be of either case, and the access key may be followed by a region."""
    text = f"MQv2-HMAC-SHA1 Credential={credential}, SignedHeaders=x-mq-date-time, Signature={digest}"
    signature = read_signature(text)
    assert signature.access_key == "ak1"
    assert signature.digest.hex() == DIGEST == sign("sk1", DATE_TIME).hex()
    assert is_signed(signature, "sk1", DATE_TIME)
    assert not is_signed(signature, "sk2", DATE_TIME)
    assert not is_signed(signature, "sk1", DATE_TIME + " ")


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
    """Nobody named, or no hexadecimal digest: Invalid, and no other error."""
    with pytest.raises(Invalid):
        read_signature(text)
