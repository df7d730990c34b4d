"""The builder of a producer's batch, with the path that most messages take."""

from threading import get_ident

from ortoo.client.core.connection import Connection
from ortoo.client.produce.producer_batch import ProducerBatch, SendFuture
from ortoo.common.machine import forks
from ortoo.common.records.batch import MESSAGE_BYTES, BatchBuilder, encoded_bytes_bound
from ortoo.common.records.message import Message
from ortoo.common.records.message_fields import NO_RARE_FIELDS


class FutureBuilder(BatchBuilder):
    """Collects the messages of one batch; plain messages get their future in one call, because that is half the cost.

    A plain message is a bare body, or a message without rare fields.
    """

    __slots__ = ("_connection", "batch")

    def __init__(self, connection: Connection, bytes_max: int) -> None:
        """`connection` refuses messages after its end. Batches have at most `bytes_max` bytes."""
        super().__init__(bytes_max)
        self._connection = connection
        self.batch: ProducerBatch | None = None
        """The batch of the messages that `take_plain` takes."""

    def take(self) -> tuple[list[Message | bytes], list[int]]:
        """As every builder, return the taken messages and start again; the large batch is not kept in memory."""
        self.batch = None
        return super().take()

    def take_plain(self, message: Message | bytes) -> SendFuture | None:
        """Take a message behind others; None if it is not plain, or belongs into another batch.

        Errors: those of `Connection.check_usable`.
        """
        kind = type(message)
        if kind is not bytes and (kind is not Message or message.rare is not NO_RARE_FIELDS):  # type: ignore[union-attr]
            return None  # soon, because others call it in vain
        connection = self._connection  # its check is called only if the usual case is excluded
        if getattr(connection.loop, "_thread_id", None) != get_ident() or connection.forks != forks.count:
            connection.check_usable()
        if kind is bytes:
            size = self.size_bytes + len(message) + self._row_bytes  # type: ignore[arg-type]
        else:
            size = self.size_bytes + encoded_bytes_bound(message) + self._row_bytes - MESSAGE_BYTES  # type: ignore[arg-type]
        messages = self._messages
        row = len(messages)
        if self.batch is None or size > self._bytes_max or row >= self._messages_max or self._exclusive:
            return None
        messages.append(message)
        self.size_bytes = size
        future = SendFuture()
        future._batch = self.batch
        future._row = row
        future._message_id = None
        return future
