"""Planted: what is sent again is stored again."""

from typing import Any

from ortoo.client.produce import in_flight
from ortoo.enode.changes.all import IdsRemembered
from ortoo.enode.recovery import refold
from ortoo.enode.state.tables import dedup, message_ids


def windows_forgotten_at_restart() -> None:
    """G4: an enode that starts knows no producer."""
    forget = refold.Refold.forget_producers

    def everyone(self: Any, *, is_cut: bool) -> None:
        forget(self, is_cut=is_cut)
        self.state.windows.keep_only(())

    refold.Refold.forget_producers = everyone  # type: ignore[method-assign]


def duplicates_accepted() -> None:
    """G4: a batch that was stored is taken for a new one."""
    decide = dedup.Sequencer.decide

    def always(self: Any, *arguments: Any) -> None:
        decide(self, *arguments)

    dedup.Sequencer.decide = always  # type: ignore[method-assign,assignment]


def retries_are_numbered_anew() -> None:
    """G4: the producer gives a batch whose answer was lost another sequence."""
    lost = in_flight.InFlight.connection_lost

    def anew(self: Any) -> None:
        lost(self)
        for batch in self._returned:
            batch.forget_number()
        self._start_anew()

    in_flight.InFlight.connection_lost = anew  # type: ignore[method-assign]


def ids_forgotten_at_restart() -> None:
    """G4: an enode that starts has forgotten the dedup ids that it was told."""

    def nothing(self: Any, change: Any) -> None:
        """Remember nothing that comes from the log; what this process stores itself comes this way too."""

    message_ids.MessageIds.FOLDS = {IdsRemembered: nothing}
