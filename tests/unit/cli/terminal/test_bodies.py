"""The body of a message in the JSON of a command."""

import pytest

from ortoo.cli.terminal.output import body_fields


@pytest.mark.parametrize(
    ("body", "fields"),
    [(b"", {"body": ""}), ("é".encode(), {"body": "é"}), (b"\xff\x00", {"body_base64": "/wA="})],
)
def test_a_body_is_text_or_base64(body: bytes, fields: dict[str, str]) -> None:
    """A body that is not UTF-8 has another field, so that no program takes base64 for the text."""
    assert body_fields(body) == fields
