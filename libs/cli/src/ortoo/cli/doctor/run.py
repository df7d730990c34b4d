"""Runs `ortoo doctor`: checks addresses, examines the cluster, prints the findings."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ortoo.cli.terminal.output import CommandOutput, show, text_of_time
from ortoo.client import Forbidden, OrtooError, connect
from ortoo.client.admin.address_check import CHECK_TIMEOUT_S, check_address
from ortoo.client.admin.doctor.facts import DETAILS_TIMEOUT_S, collect_facts
from ortoo.client.admin.doctor.findings import DoctorFinding, address_findings, cluster_findings
from ortoo.client.core.credentials import (
    CERTIFICATE_VARIABLE,
    IDENTITY_VARIABLES,
    addresses_from,
    effective_environment,
)
from ortoo.common.machine.certificates import CertificateFile
from ortoo.common.process.clock import SystemClock
from ortoo.common.telemetry.process_metrics import certificate_findings

CLUSTER_TIMEOUT_S = 0.4
"""Time reserved for the description of the cluster, which may also use time that the checks of addresses leave."""
TIMEOUT_S = CHECK_TIMEOUT_S + CLUSTER_TIMEOUT_S + DETAILS_TIMEOUT_S
"""Limit of the whole run."""


async def diagnose(address: str, topic: str, group: str, *, as_json: bool, timeout_factor: float = 1.0) -> None:
    """Print the problems found, within `timeout_factor` times TIMEOUT_S. The exit code is 1 if a problem is serious."""
    deadline_s = asyncio.get_running_loop().time() + TIMEOUT_S * timeout_factor
    environ = os.environ if address else effective_environment()
    addresses = addresses_from(address, environ)
    checks = await asyncio.gather(*(check_address(one, environ, timeout_factor=timeout_factor) for one in addresses))
    found = [finding for one in checks for finding in address_findings(one)] + _own_certificates(environ)
    snode_addresses = [one.address for one in checks if one.role == "snode"]
    if snode_addresses:
        found += await _findings_behind(
            snode_addresses, environ, topic, group, deadline_s, DETAILS_TIMEOUT_S * timeout_factor
        )
    show(CommandOutput(found, _lines(found, snode_addresses)), as_json=as_json)
    if any(finding.critical for finding in found):
        sys.exit(1)


async def _findings_behind(
    addresses: Sequence[str],
    environ: Mapping[str, str],
    topic: str,
    group: str,
    deadline_s: float,
    details_s: float = DETAILS_TIMEOUT_S,
) -> list[DoctorFinding]:
    """The problems of the cluster whose snodes have these `addresses`, queried with the credentials of `environ`."""
    keys: dict[str, Any] = {
        variable.removeprefix("ORTOO_").lower(): environ.get(variable, "") for variable in IDENTITY_VARIABLES
    }
    try:
        async with connect(addresses, **keys) as mq:
            return cluster_findings(await collect_facts(mq.admin, topic, group, deadline_s, details_s))
    except Forbidden as error:
        remedy = (
            "run the doctor as a user with the permissions of an admin: set ORTOO_ACCESS_KEY and ORTOO_SECRET_KEY "
            "(docs/operations/access.md)"
        )
        observed = f"the cluster was not examined, because the snode refuses this user: {error.message}"
        return [DoctorFinding("not permitted", observed, remedy)]
    except (OrtooError, TimeoutError) as error:
        reason = str(error) or "no answer in time"
        return [
            DoctorFinding("no answer", f"the snode does not answer: {reason}", "look at its log and its processor time")
        ]


def _own_certificates(environ: Mapping[str, str]) -> list[DoctorFinding]:
    """The findings of the certificate that this command uses."""
    file = environ.get(CERTIFICATE_VARIABLE)
    files = [CertificateFile(CERTIFICATE_VARIABLE, Path(file))] if file else []
    found = certificate_findings(files, SystemClock().now_ms())
    return [DoctorFinding(one.name, one.observed, one.remedy, one.critical, one.impact) for one in found]


def _lines(found: Sequence[DoctorFinding], snode_addresses: Sequence[str]) -> list[str]:
    if not found:
        return [f"all is well at {', '.join(snode_addresses)}"]
    lines = []
    for finding in found:
        process = f" ({finding.process})" if finding.process else ""
        impact = f"\n  so {finding.impact}" if finding.impact else ""
        mark = "✗" if finding.critical else "!"
        lines.append(
            f"{mark} {finding.name}{process}{_since(finding)}: {finding.observed}{impact}\n  → {finding.remedy}"
        )
    return lines


def _since(finding: DoctorFinding) -> str:
    """Since when a process sees the problem; empty if it is not known."""
    if not finding.since_ms:
        return ""
    is_older = finding.since_ms <= finding.seen_from_ms
    return f", {'at least ' if is_older else ''}since {text_of_time(finding.since_ms)}"
