"""Whether the cluster accepts the signature of a caller."""

from ortoo.client import Admin
from ortoo.common.errors import Forbidden, OrtooError, Unavailable
from ortoo.console.cluster.partial import AUTHORIZATION

ANY_TOPIC = "any"
"""The name in a call whose answer does not matter: the signature is checked before the name."""


async def check_authenticated(admin: Admin) -> None:
    """Make a signed call. Errors: Forbidden for an unknown user or a wrong secret, Unavailable."""
    try:
        await admin.describe_topics([ANY_TOPIC])
    except Forbidden as error:
        if error.field == AUTHORIZATION:
            raise
    except Unavailable:
        raise
    except OrtooError:
        return
