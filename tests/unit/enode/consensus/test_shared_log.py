"""The log of a member, as it is emptied and begins anew elsewhere."""

from dataclasses import replace

from ortoo.common.process.randomness import Randomness
from ortoo.enode.consensus.joining import Founding, Joining
from ortoo.enode.consensus.shared_log import open_shared_log
from ortoo.enode.disk.identity import Identity
from ortoo.enode.store.store import Store
from ortoo.testing.store.workload import FOLDER
from tests.contract.one_store import SETTINGS, OneStore


async def test_closing_a_log_that_was_emptied_writes_nothing_about_what_it_held() -> None:
    """No index of segments that had just become full, for they are gone, and no marker of a clean stop behind them."""
    one = OneStore(settings=replace(SETTINGS, idle_mark_ms=1_000_000))
    await one.open()
    await one.store.close()
    disk = one.disk
    joining = Joining(disk, FOLDER, Founding(1, 1, ()), one.clock, Randomness(1))
    kept, outline = joining.started()
    identity = Identity("default", "enode-0", kept.set_id, kept.created_at_ms)
    log = await open_shared_log(
        FOLDER, identity=identity, settings=one.settings, disk=disk, clock=one.clock, kept=outline
    )
    await log.engine.housekeeping.stop()  # so that no index is written meanwhile
    log.engine.appender.commit_limit = 1 << 62
    log.begin_reign(1)
    log.serve()
    one.store = Store(log.engine)
    while len(log.engine.catalog.segments) < 3:
        await one.append(b"x" * 1_000)
    end = log.engine.appender.appended_position
    assert await log.restart(replace(log.outline, begin=2 * end, appended=2 * end, flushed=2 * end))
    await log.close()
    assert set(disk.list(FOLDER)) == {"begin", "identity", "outline", "reign"}
    log = await open_shared_log(
        FOLDER, identity=identity, settings=one.settings, disk=disk, clock=one.clock, kept=joining.started()[1]
    )
    assert log.engine.appender.appended_position == 2 * end
    await log.close()
