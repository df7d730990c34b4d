"""Planted: a repeated send is stored again."""

from typing import Any

from ortoo.client.produce import in_flight
from ortoo.enode.changes.kinds import IdsRemembered
from ortoo.enode.recovery import refold
from ortoo.enode.state.tables import dedup, message_ids


def windows_forgotten_at_restart() -> None:
    """G4: a starting enode has forgotten the batches of its idempotent producers."""
    forget = refold.StateRefold.forget_producers

    def everyone(self: Any, *, is_cut: bool) -> None:
        forget(self, is_cut=is_cut)
        self.state.windows.keep_only(())

    refold.StateRefold.forget_producers = everyone  # type: ignore[method-assign]


def duplicates_accepted() -> None:
    """G4: a repeated batch is treated as a new batch."""
    decide = dedup.Sequencer.decide

    def always(self: Any, *arguments: Any) -> None:
        decide(self, *arguments)

    dedup.Sequencer.decide = always  # type: ignore[method-assign,assignment]


def retries_are_numbered_again() -> None:
    """G4: the producer retries a batch without an answer under another sequence number."""
    lost = in_flight.InFlight.on_connection_lost

    def renumber(self: Any) -> None:
        lost(self)
        for batch in self._to_retry:
            batch.reset_number()
        self._reset_producer_id()

    in_flight.InFlight.on_connection_lost = renumber  # type: ignore[method-assign]


def ids_forgotten_at_restart() -> None:
    """G4: a starting enode has forgotten the dedup ids."""

    def nothing(self: Any, change: Any) -> None:
        """Ignore ids of the log; ids of this process use this method too."""

    message_ids.MessageIdTable.FOLDS = {IdsRemembered: nothing}
