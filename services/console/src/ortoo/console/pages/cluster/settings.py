"""The settings of running processes with their origins, and the history of changes."""

import asyncio

from starlette.responses import Response

from ortoo.client import ProcessSettings
from ortoo.client.admin.operations import CertificateValidity, ClusterExamination, ExaminedProcess
from ortoo.common.errors import Invalid
from ortoo.common.machine.certificates import EXPIRES_SOON_MS
from ortoo.console.cluster.partial import ask
from ortoo.console.web.visit import Page, Visit

ROLES = ("namesrv", "enode", "snode")


async def show(visit: Visit) -> Response:
    """The settings of the processes of one role: those that differ from the defaults, or all."""
    role, everything = visit.query("role") or "snode", bool(visit.query("all"))
    if role not in ROLES:
        raise Invalid(f"{role[:40]!r}; expected namesrv, enode or snode", field="role")
    found, history, examined = await asyncio.gather(
        visit.admin.operations.list_settings(role),
        ask(visit.admin.operations.list_setting_changes(role)),
        ask(visit.admin.operations.examine()),
    )
    return visit.page(
        "settings.html",
        title="Settings",
        commands=(("settings", "get", role), ("settings", "history", role)),
        role=role,
        roles=ROLES,
        everything=everything,
        processes=[(one, shown_settings(one, everything=everything)) for one in found],
        history=history,
        examined=examined,
        certificates=certificates_of(examined.value) if examined.value is not None else [],
        certificate_soon_ms=EXPIRES_SOON_MS,
    )


def shown_settings(process: ProcessSettings, *, everything: bool) -> list[object]:
    """The settings of a process that the page shows."""
    return [one for one in process.settings if everything or one.origin != "default" or one.at_next_start is not None]


def certificates_of(examined: ClusterExamination) -> list[tuple[ExaminedProcess, CertificateValidity]]:
    """The files of certificates of the processes that answered, those that expire first at the beginning."""
    found = [(process, one) for process in examined.processes for one in process.certificates]
    return sorted(found, key=lambda row: (row[1].ends_ms, row[0].role, row[0].name, row[1].setting))


PAGES = (Page("/settings", show),)
