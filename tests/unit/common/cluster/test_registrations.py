"""The findings of a process that name servers refuse."""

import asyncio

import pytest

from ortoo.common.cluster.name_servers import NameServers
from ortoo.common.cluster.refused import DOUBLE_FIELD, LEASE_FIELD, STORE_FIELD, refused
from ortoo.common.cluster.registrations import Registrations
from ortoo.common.errors import Conflict, Fenced
from ortoo.common.errors.findings import Finding
from ortoo.common.process.background import Background
from ortoo.common.process.randomness import Randomness
from ortoo.verification.time.virtual_clock import VirtualClock

ADDRESS = "names:1"


async def findings_after(error: Conflict | Fenced) -> list[Finding]:
    """The findings of a process after a name server has refused it with this error."""

    async def announce(address: str) -> float:
        raise error

    async def leave(address: str) -> None: ...

    clock, refusal = VirtualClock(), asyncio.Event()
    announcing = Registrations(
        NameServers(ADDRESS), announce, leave, interval_s=1.0, clock=clock, randomness=Randomness(1)
    )
    announcing.answered = refusal.set
    async with asyncio.timeout(60), Background("announcing") as background:
        background.spawn("leases", announcing.run())
        await refusal.wait()
    return list(announcing.findings())


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (Conflict("another store", field=STORE_FIELD), "store mismatch"),
        (Conflict("two stores", field=DOUBLE_FIELD), "registration rejected"),
        (Conflict("the former process is alive", field=LEASE_FIELD), "registration rejected"),
        (Fenced("a later process", field="incarnation"), "registration rejected"),
    ],
)
async def test_a_refused_process_reports_the_finding_of_the_name_server(error: Conflict | Fenced, name: str) -> None:
    """An enode with the wrong volume is told to mount its own one, not to stop another process."""
    (found,) = await findings_after(error)
    assert found == refused(f"the name server {ADDRESS} refuses this process: {error.message}", error)
    assert found.name == name
