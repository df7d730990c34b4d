"""Access control: authentication by signature and authorization by rules. It is off without an `access_file`."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from sys import getsizeof
from typing import Any, TypeVar

import grpc

from ortoo.common.errors import Forbidden, Invalid, NotFound, OrtooError
from ortoo.common.grpc.channels import with_headers
from ortoo.common.grpc.layers.call_memory import current_memory_share
from ortoo.common.grpc.signature import (
    AUTHORIZATION,
    DATE_TIME,
    Signature,
    SignedCall,
    check_time,
    is_signed,
    read_signature,
    signing,
)
from ortoo.common.process.clock import Clock
from ortoo.common.telemetry.metrics import Metrics
from ortoo.snode.cluster.directory import DirectoryCache
from ortoo.snode.cluster.name_server import NameServerClient
from ortoo.snode.policy.access_rules import AccessRules, Grant, RequiredPermission, Resource, parse_access_rules
from ortoo.snode.policy.audit import AuditLog
from ortoo.snode.policy.principal import Principal
from ortoo.snode.policy.required_permissions import is_observation, required_permissions
from ortoo.snode.policy.watched_file import WatchedFile
from ortoo.snode.settings import SnodeSettings

T = TypeVar("T")

SECRET_TTL_S = 10.0
"""Time for which a secret is cached."""
USER_CHECK_INTERVAL_S = 10.0
"""Interval for checks of the users of open streams. With SECRET_TTL_S it limits the access of a deleted user."""
UNKNOWN_USER_TTL_S = 5.0
"""Time for which an unknown access key is cached."""
PERMISSION_BYTES = 256
"""Memory that a stream uses for each checked permission, beside the name."""
USERS_MAX = UNKNOWN_USERS_MAX = 10_000
ACCESS_KEY_LENGTH_MAX = 127
"""Limit of access keys, so that an unauthenticated client cannot occupy much memory."""


class Authentication:
    """Checks the signatures of calls with the secrets of users, which the name server stores."""

    def __init__(self, name_server: NameServerClient, clock: Clock, settings: SnodeSettings) -> None:
        self._name_server = name_server
        self._clock = clock
        self._window_ms = int(settings.signature_window_s * 1000)
        self._local_times = settings.signature_local_times
        self._requests_required = settings.signed_requests_required
        self._secrets: OrderedDict[str, tuple[str, float]] = OrderedDict()
        """By access key of a user: the secret, and the time until which it is cached."""
        self._unknown_users: OrderedDict[str, float] = OrderedDict()
        """By unknown access key: the time until which it is cached. A separate table, so that they do not displace
        users."""

    def authenticate(
        self, headers: Mapping[str, str], call: SignedCall, *, own_client: bool = False
    ) -> tuple[str, str] | Awaitable[tuple[str, str]]:
        """Check the signature of a call; returns the access key and the secret of its user.

        The result is awaitable if the secret is not cached, so that a name server has to be asked. `own_client` = the
        caller is a client of Ortoo, which always signs times in UTC.

        Errors: Forbidden (field `authorization`), Unavailable.
        """
        signature, date_time = self._read_signature(headers)
        secret_key = self._cached_secret(signature.access_key)
        if secret_key is None:
            return self._authenticate_later(signature, date_time, call, own_client=own_client)
        return self._check(signature, secret_key, date_time, call, own_client=own_client)

    async def _authenticate_later(
        self, signature: Signature, date_time: str, call: SignedCall, *, own_client: bool
    ) -> tuple[str, str]:
        secret_key = await self.get_secret(signature.access_key)
        return self._check(signature, secret_key, date_time, call, own_client=own_client)

    def _read_signature(self, headers: Mapping[str, str]) -> tuple[Signature, str]:
        """The signature of a call, and the time that it covers. Errors: Forbidden."""
        date_time = headers.get(DATE_TIME, "")
        if not date_time:
            raise _unauthenticated(f"the header {DATE_TIME} is missing; the signature of a request must cover it")
        try:
            signature = read_signature(headers.get(AUTHORIZATION, ""))
        except Invalid as error:
            raise _unauthenticated(error.message) from None
        if self._requests_required and not signature.covers_request:
            raise _unauthenticated("signed_requests_required is set: the signature must cover method and request")
        return signature, date_time

    def _check(
        self, signature: Signature, secret_key: str, date_time: str, call: SignedCall, *, own_client: bool
    ) -> tuple[str, str]:
        """The access key and the secret of a signature, if the secret made it. Errors: Forbidden."""
        if not secret_key or not is_signed(signature, secret_key, date_time, call):
            raise _unauthenticated(f"the signature of {signature.access_key!r} is wrong")
        try:  # after the secret: an unauthenticated client learns nothing about the clock
            local = self._local_times and not own_client
            check_time(date_time, self._clock.now_ms(), self._window_ms, local=local)
        except Invalid as error:
            raise _unauthenticated(error.message) from None
        return signature.access_key, secret_key

    async def forwarding_channel(self, principal: Principal, channel: grpc.aio.Channel) -> grpc.aio.Channel:
        """A channel over which this snode forwards requests with the user's signature. Errors: Unavailable."""
        secret_key = await self.get_secret(principal.user) if principal.user else ""
        return with_headers(channel, signing(principal.user, secret_key, self._clock)) if secret_key else channel

    async def get_secret(self, access_key: str) -> str:
        """The secret of the user with this access key.

        It is empty for an unknown or disabled user, so that clients cannot probe for names. While no name server
        answers, a cached secret stays valid. Errors, if no secret is cached: Unavailable, Overloaded.
        """
        if (cached := self._cached_secret(access_key)) is not None:
            return cached
        now_s = self._clock.monotonic_s()
        secret_key, _ = self._secrets.get(access_key, ("", 0.0))
        try:
            secret_key = await self._name_server.get_secret(access_key)
        except (NotFound, Forbidden, Invalid):
            self._secrets.pop(access_key, None)
            _cache_value(self._unknown_users, access_key, now_s + UNKNOWN_USER_TTL_S, UNKNOWN_USERS_MAX)
            return ""
        except OrtooError as error:
            if not secret_key or not error.retriable:
                raise
        _cache_value(self._secrets, access_key, (secret_key, now_s + SECRET_TTL_S), USERS_MAX)
        return secret_key

    def _cached_secret(self, access_key: str) -> str | None:
        """The secret, empty for an unknown user; None if a name server has to be asked."""
        if len(access_key) > ACCESS_KEY_LENGTH_MAX:
            return ""
        secret_key, until_s = self._secrets.get(access_key) or ("", self._unknown_users.get(access_key, 0.0))
        return secret_key if until_s > self._clock.monotonic_s() else None


def _cache_value(cache: OrderedDict[str, T], access_key: str, value: T, size_max: int) -> None:
    cache[access_key] = value
    cache.move_to_end(access_key)
    if len(cache) > size_max:
        cache.popitem(last=False)


def _unauthenticated(message: str) -> Forbidden:
    return Forbidden(message, field=AUTHORIZATION)


class AccessControl:
    """The access rules in a file, which is reloaded when it changes, and the users of the name server."""

    def __init__(self, path: str, authentication: Authentication, directory: DirectoryCache, audit: AuditLog) -> None:
        """Follow the file at `path`, and record refused calls in `audit`.

        `file.load` raises Invalid if the file is missing or wrong.
        """
        self.rules = AccessRules({})
        """The current rules; a new object after each change."""
        self.refused_count = 0
        """Number of refused calls and requests."""
        self.authentication = authentication
        self.directory = directory
        self._audit = audit
        self.file = WatchedFile(path, "rules of access", self._apply_rules)
        self._streams: dict[CallAccess, Callable[[Forbidden], None]] = {}

    def register(self, metrics: Metrics) -> None:
        """Register the metrics of access control."""
        metrics.counter(
            "ortoo_access_refused_total", "Requests refused for missing permissions.", lambda: self.refused_count
        )
        metrics.gauge("ortoo_access_users", "Users in the access file.", lambda: len(self.rules.users))

    def note_refusal(self, user: str, peer: str, method: str, error: Forbidden) -> None:
        """Count and record a refused call or request; `user` is empty if its signature was refused."""
        self.refused_count += 1
        self._audit.record_refusal(user, peer, method, error.message)

    def add_stream(self, call: "CallAccess", end: Callable[[Forbidden], None]) -> None:
        """Register a stream or a waiting poll; `end` is called when its user loses a permission that it needs."""
        call.is_stream = True
        self._streams[call] = end

    def remove_stream(self, call: "CallAccess") -> None:
        """Remove a registered stream or poll."""
        self._streams.pop(call, None)

    async def recheck_users(self) -> None:
        """End the streams of users that were changed or deleted, including idle streams."""
        for call, end in tuple(self._streams.items()):
            try:
                await call.recheck_user()
            except Forbidden as error:
                end(error)
            except OrtooError:
                continue  # an unreachable name server says nothing about users

    def _apply_rules(self, text: str) -> None:
        """Use these rules. Streams that the rules do not allow end at once, including idle streams."""
        self.rules = parse_access_rules(text)
        for call, end in tuple(self._streams.items()):
            try:
                call.recheck()
            except Forbidden as error:
                end(error)

    def grant_on(self, user: str, resource: Resource, name: str) -> Grant:
        """The permissions of a user on a topic or a group by the present rules."""
        rules = self.rules.users.get(user)
        return Grant.DENY if rules is None else rules.grant_on(resource, name, self.directory.governor_of)


class CallAccess:
    """The authentication and authorization of one call: its user, and the permissions checked for it.

    The permissions for all requests of a stream are checked again when the rules change.
    """

    def __init__(self, access: AccessControl, method: str, peer: str) -> None:
        """`method` has the form "ProducerService/Publish", `peer` the form host:port."""
        self._access = access
        self._method = method
        self._is_observation = is_observation(method)
        self._peer = peer
        self.is_stream = False
        self._secret_key = ""
        self._user: str | None = None
        """The signed-in user; None = the address of the caller is trusted."""
        self._granted: dict[RequiredPermission, None] = {}
        self._rules = access.rules

    @property
    def principal(self) -> Principal:
        """The signed-in user."""
        if self._user is None:
            return Principal()
        is_admin, is_observer = self._rules.is_admin(self._user), self._rules.is_observer(self._user)
        if self._is_observation and is_observer:
            return Principal(self._user, is_admin, is_observer=True)
        grant_on = partial(self._access.grant_on, self._user)
        topics, groups = partial(grant_on, Resource.TOPIC), partial(grant_on, Resource.GROUP)
        return Principal(self._user, is_admin, topics, groups, is_observer)

    def sign_in(self, headers: Mapping[str, str], request: bytes | None) -> Awaitable[None] | None:
        """Authenticate the call; the result is awaited if the secret of the user has to be requested.

        `request` has the bytes of the request; None for a stream of requests. Errors: Forbidden (field
        `authorization`), Unavailable.
        """
        if self._rules.is_trusted(self._peer):
            return None
        own_client = not self._method.startswith("MessagingService/")
        try:
            found = self._access.authentication.authenticate(
                headers, SignedCall(self._method, request), own_client=own_client
            )
        except Forbidden as error:
            self._note_refusal(error)
            raise
        if not isinstance(found, tuple):
            return self._sign_in_later(found)
        self._user, self._secret_key = found
        return None

    async def _sign_in_later(self, found: Awaitable[tuple[str, str]]) -> None:
        try:
            self._user, self._secret_key = await found
        except Forbidden as error:
            self._note_refusal(error)
            raise

    def authorize(self, request: Any) -> None:
        """Refuse a request for which the user has no permission.

        Errors: Forbidden, Invalid for a malformed handle, Overloaded if a stream has named too many resources.
        """
        self.recheck()
        required = required_permissions(self._method, request, self._access.directory.topic_name)
        new = [need for need in required if need not in self._granted]
        if new:
            self._check(new)
            if self.is_stream and (share := current_memory_share()) is not None:
                share.draw_fixed(sum(PERMISSION_BYTES + getsizeof(need.name) for need in new))
            self._granted.update(dict.fromkeys(new))

    def recheck(self) -> None:
        """Check the permissions for all earlier requests again, if the rules have changed. Errors: Forbidden."""
        if self._rules is not self._access.rules:
            self._rules = self._access.rules
            self._check(self._granted)

    async def recheck_user(self) -> None:
        """Refuse the call if the secret of its user has changed. Errors: Forbidden, Unavailable."""
        if self._user is not None and await self._access.authentication.get_secret(self._user) != self._secret_key:
            error = _unauthenticated(f"user {self._user} was changed or deleted; sign in again")
            self._note_refusal(error)
            raise error

    def _check(self, permissions: "list[RequiredPermission] | dict[RequiredPermission, None]") -> None:
        try:
            if self._user is None:
                if not self._rules.is_trusted(self._peer):
                    raise _unauthenticated("this address is no longer trusted; sign in again")
                return
            governor_of = self._access.directory.governor_of
            self._rules.check(self._user, permissions, is_observation=self._is_observation, governor_of=governor_of)
        except Forbidden as error:
            self._note_refusal(error)
            raise

    def _note_refusal(self, error: Forbidden) -> None:
        self._access.note_refusal(self._user or "", self._peer, self._method, error)
