"""How a handler says that a message is not processed and when it shall come again."""


class RetryLater(Exception):
    """Raised by a handler: the message is not processed and shall come again."""

    def __init__(self, delay_level: int = 0, delay_ms: float | None = None, *, counts: bool = True) -> None:
        """Outside an order: at a delay level, 1 to 18; 0 = as the attempts say, -1 = never, park it.

        In order: after `delay_ms`, between 10 ms and 30 s. For a pop consumer `delay_ms` may be anything up to a week,
        and unless it `counts` the delivery is no attempt: what the handler needs is away, the message is not at fault.
        """
        super().__init__(f"again at level {delay_level}" if delay_ms is None else f"again in {delay_ms} ms")
        self.delay_level = delay_level
        self.delay_ms = delay_ms
        self.counts = counts
