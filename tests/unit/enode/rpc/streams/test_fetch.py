"""The FetchBatches stream: what is left of one whose peer has gone."""

import weakref
from types import SimpleNamespace
from typing import Any

from ortoo.common.errors import Moved
from ortoo.enode.rpc.streams.fetch import CommittedStream


def test_a_stream_of_a_member_that_follows_goes_with_its_call() -> None:
    """It holds what was read and not taken: that waits for no look for garbage."""
    engine: Any = SimpleNamespace(work=None)
    stream = CommittedStream(engine, lambda: Moved("nobody leads"))
    left = weakref.ref(stream)
    del stream
    assert left() is None
