"""Who calls, by the signature of the call."""

from collections import OrderedDict
from collections.abc import Mapping

from ortoo.common.errors import Forbidden, Invalid, NotFound
from ortoo.common.grpc.signature import AUTHORIZATION, DATE_TIME, is_signed, read_signature
from ortoo.common.process.clock import Clock
from ortoo.snode.cluster.name_server import NameServer

KNOWN_S = 30.0
"""How long a secret is believed; so long a changed or deleted user goes on."""
UNKNOWN_S = 5.0
USERS_MAX = 10_000


class Authentication:
    """Checks signatures with the secrets that the name server keeps."""

    def __init__(self, name_server: NameServer, clock: Clock) -> None:
        self._name_server = name_server
        self._clock = clock
        self._secrets: OrderedDict[str, tuple[str, float]] = OrderedDict()

    async def user_of(self, headers: Mapping[str, str]) -> str:
        """The access key of the user who signed a call. Errors: Forbidden, of field `authorization`; Unavailable."""
        date_time = headers.get(DATE_TIME, "")
        if not date_time:
            raise _refused(f"the header {DATE_TIME} is missing, over which requests are signed")
        try:
            signature = read_signature(headers.get(AUTHORIZATION, ""))
        except Invalid as error:
            raise _refused(error.message) from None
        secret_key = await self._secret_of(signature.access_key)
        if not secret_key or not is_signed(signature, secret_key, date_time):
            raise _refused(f"the signature of {signature.access_key!r} is not right")
        return signature.access_key

    async def _secret_of(self, access_key: str) -> str:
        """The secret; empty for a user who is unknown or disabled, so that nobody learns which names exist."""
        now_s = self._clock.monotonic_s()
        known = self._secrets.get(access_key)
        if known is not None and known[1] > now_s:
            return known[0]
        try:
            secret_key, valid_s = await self._name_server.secret_of(access_key), KNOWN_S
        except (NotFound, Forbidden, Invalid):
            secret_key, valid_s = "", UNKNOWN_S
        self._secrets[access_key] = (secret_key, now_s + valid_s)
        self._secrets.move_to_end(access_key)
        if len(self._secrets) > USERS_MAX:
            self._secrets.popitem(last=False)
        return secret_key


def _refused(words: str) -> Forbidden:
    return Forbidden(words, field=AUTHORIZATION)
