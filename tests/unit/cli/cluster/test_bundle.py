"""Secrets in a bundle are replaced, whatever has them."""

from ortoo.cli.cluster.bundle import without_secrets
from ortoo.client import UserInfo
from ortoo.common.process.masked_url import MASK


def test_secrets_are_replaced_and_the_rest_stays() -> None:
    """By the name of a value and by the form of a URL, at every depth. Paths of files are no secrets."""
    given = {
        "redis_url": "redis://user:hidden@host:6379/0",
        "list": [{"admin_token": "hidden", "admin_token_file": "/run/token"}],
        "secret_key": "hidden",
        "empty_secret": "",
        "access_key": "ann",
        "user": UserInfo("ann", True, 7),
        "count": 3,
    }
    found = without_secrets(given)
    assert "hidden" not in str(found)
    assert found["list"] == [{"admin_token": MASK, "admin_token_file": "/run/token"}]
    assert (found["empty_secret"], found["access_key"], found["count"]) == ("", "ann", 3)
    assert found["user"] == {"access_key": "ann", "enabled": True, "created_at_ms": 7}
