"""The first page: the findings of the doctor, the processes, and the checks that did not run."""

import asyncio
from dataclasses import dataclass
from typing import Any

from starlette.responses import HTMLResponse, Response

from ortoo.client.admin.doctor.facts import collect_facts
from ortoo.client.admin.doctor.findings import DoctorFinding, Facts, cluster_findings
from ortoo.console.web.visit import Page, Visit

EXAMINATION_S = 4.0
"""Limit of the examination. Queries without an answer in this time are named as not checked."""
DETAILS_S = 2.0
INCOMPLETE = "checks incomplete"


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process of the cluster, as the page shows it."""

    role: str
    name: str
    address: str
    version: str
    state: str
    """`ok`, `away`, `refuses sends` or `not examined`."""
    detail: str = ""


async def show(visit: Visit) -> Response:
    """The page with its first examination."""
    examined = await _examine(visit)
    return visit.page("overview.html", title="Problems", commands=(("doctor",), ("cluster",)), **examined)


async def refresh(visit: Visit) -> Response:
    """The part of the page that changes, for its regular refresh."""
    return HTMLResponse(visit.fragment("overview_state.html", **await _examine(visit)))


async def _examine(visit: Visit) -> dict[str, Any]:
    """The values of the page. Errors: those of the snode."""
    deadline_s = asyncio.get_running_loop().time() + EXAMINATION_S
    try:
        facts = await collect_facts(visit.admin, "", "", deadline_s, DETAILS_S)
    except TimeoutError:
        raise_text = f"the snode did not describe the cluster within {EXAMINATION_S:.0f} s"
        return {"findings": [], "processes": [], "unchecked": [raise_text], "is_healthy": False, "examined": 0}
    found = [one for one in cluster_findings(facts) if one.name != INCOMPLETE]
    rows = process_rows(facts)
    unchecked = [*facts.unchecked, *(f"{one.role} {one.name}" for one in rows if one.state == "not examined")]
    if facts.reported_error:
        unchecked.append(f"the findings of the processes ({facts.reported_error})")
    return {
        "findings": ordered(found),
        "processes": rows,
        "unchecked": sorted(set(unchecked)),
        "is_healthy": not found and not unchecked,
        "examined": len(facts.processes),
    }


def ordered(found: list[DoctorFinding]) -> list[DoctorFinding]:
    """The findings, serious ones first."""
    return sorted(found, key=lambda one: not one.critical)


def process_rows(facts: Facts) -> list[ProcessRow]:
    """The processes that are registered or that reported, name servers first."""
    answered = {(one.role, one.name): one.version for one in facts.processes}
    rows = [
        ProcessRow("name server", name, "", version, "ok")
        for (role, name), version in answered.items()
        if role == "name server"
    ]
    for role, registered in (("enode", facts.cluster.enodes), ("snode", facts.cluster.snodes)):
        for one in registered:
            version = answered.get((role, one.name), "")
            state = "ok" if version else "not examined"
            if not one.alive:
                state = "away"
            elif one.write_refusal:
                state = "refuses sends"
            rows.append(ProcessRow(role, one.name, one.address, version, state, one.write_refusal))
    return rows


PAGES = (Page("/", show), Page("/overview/state", refresh))
