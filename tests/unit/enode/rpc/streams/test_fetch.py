"""The FetchBatches stream after its peer has disconnected."""

import weakref
from types import SimpleNamespace
from typing import Any

from ortoo.common.errors import NotLeader
from ortoo.enode.rpc.streams.fetch import CommittedStream


def test_a_stream_of_a_member_that_follows_goes_with_its_call() -> None:
    """It holds unread answers, which must be freed without a run of the garbage collector."""
    engine: Any = SimpleNamespace(work=None)
    stream = CommittedStream(engine, lambda: NotLeader("there is no leader"))
    left = weakref.ref(stream)
    del stream
    assert left() is None
