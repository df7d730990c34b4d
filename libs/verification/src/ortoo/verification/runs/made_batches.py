"""The batches that producers of this process seal, to compare with the batches that arrive elsewhere."""

from typing import Any

import pytest

from ortoo.client.produce import producer_batch
from ortoo.common.records.batch import encode
from ortoo.common.records.sealed_batch import SealedBatch


def record_sealed_batches(monkeypatch: pytest.MonkeyPatch) -> list[SealedBatch]:
    """A list to which every sealed batch is added; it grows until the test ends."""
    made: list[SealedBatch] = []

    def kept(*arguments: Any, **options: Any) -> SealedBatch:
        made.append(encode(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(producer_batch, "encode", kept)
    return made
