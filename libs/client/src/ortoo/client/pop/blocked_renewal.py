"""Renews leases while the event loop is blocked, from a thread, over a connection of its own."""

from collections.abc import Mapping

from ortoo.client import log_events
from ortoo.client.core.connection import Connection
from ortoo.client.pop.pop_calls import receipts_of
from ortoo.client.pop.popped import PopLease, by_enode, request_chunks
from ortoo.common.errors import OrtooError
from ortoo.common.logs.logger import get_logger
from ortoo.v1 import pop_pb2

_log = get_logger("consumer")


class BlockedRenewal:
    """Renews the leases of a consumer from another thread while the consumer's event loop is blocked.

    It changes only the renewal times of the leases. The loop detects lost leases later.
    """

    def __init__(
        self, connection: Connection, leases: Mapping[PopLease, None], *, invisible_ms: float, renew_max_ms: float
    ) -> None:
        """`leases` are those of the consumer, which the loop changes when it runs."""
        self._connection = connection
        self._leases = leases
        self._invisible_ms = invisible_ms
        self._renew_max_ms = renew_max_ms

    def renew(self) -> None:
        """Renew leases that were last renewed at least a third of `invisible_ms` ago."""
        now_s = self._connection.clock.monotonic_s()
        due = [
            lease
            for lease in tuple(self._leases)  # one step of the interpreter, also if the loop runs again meanwhile
            if (now_s - lease.popped_at_s) * 1000 < self._renew_max_ms
            and (now_s - lease.renewed_at_s) * 1000 >= self._invisible_ms / 3
        ]
        for leases in by_enode(due).values():
            for part in request_chunks(leases):
                receipts = [(lease.receipt_handle, sorted(lease.open_offsets)) for lease in part]
                request = pop_pb2.ChangeInvisibleRequest(
                    receipts=receipts_of(receipts), invisible_ms=int(self._invisible_ms)
                )
                try:
                    self._connection.call_from_thread(
                        "/ortoo.v1.ConsumerService/ChangeInvisible",
                        request,
                        pop_pb2.ChangeInvisibleResponse,
                        timeout_s=self._invisible_ms / 6_000,
                    )
                except OrtooError as error:
                    self._connection.retry_log.emit(
                        _log, log_events.LEASE_RENEWAL_FAILED_RETRYING, error, leases=len(part)
                    )
                    return
                for lease in part:
                    lease.renewed_at_s = now_s
