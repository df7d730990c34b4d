"""FindingsService of a process that reports only its own findings."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from ortoo.common.errors.finding_history import FindingHistory
from ortoo.common.errors.findings import Finding, Findings, process_version
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import read, write
from ortoo.common.grpc.server import AddServicer
from ortoo.common.machine.certificates import CertificateFile, Validity
from ortoo.common.process.clock import Clock
from ortoo.common.process.long_work import in_slices
from ortoo.v1 import findings_pb2 as pb
from ortoo.v1.findings_pb2_grpc import FindingsServiceServicer, add_FindingsServiceServicer_to_server

NAME = pb.DESCRIPTOR.services_by_name["FindingsService"].full_name


@dataclass(eq=False)
class LocalFindings(FindingsServiceServicer):
    """Answers with the findings of this process."""

    own: Findings
    clock: Clock
    certificates: Sequence[CertificateFile] = ()
    history: FindingHistory = field(default_factory=FindingHistory)

    async def check(self) -> None:
        """Examine the process, so that it is known since when each finding is seen."""
        await self._examine()

    async def ListFindings(  # noqa: N802  # gRPC's name
        self, request: pb.ListFindingsRequest, context: Context
    ) -> pb.ListFindingsResponse:
        """The current findings."""
        return await self.answer()

    async def answer(self) -> pb.ListFindingsResponse:
        """The current findings, and the identity of this process."""
        found = await self._examine()
        mine = write(
            pb.ExaminedProcess,
            self.own.identity(),
            role=self.own.role,
            name=self.own.name,
            version=process_version(),
            now_ms=self.clock.now_ms(),
            certificates=map(_encode_certificate, self.certificates),
        )
        return pb.ListFindingsResponse(findings=findings_to(found), processes=[mine])

    async def _examine(self) -> list[Finding]:
        found: list[Finding] = []
        async for part in in_slices(self.own.steps(), self.clock):
            found += [replace(one, process=self.own.process) for one in part if one is not None]
        return self.history.check(found, self.clock.now_ms())


def _encode_certificate(file: CertificateFile) -> pb.CertificateValidity:
    validity = file.validity() or Validity(0, 0)
    return write(pb.CertificateValidity, validity, setting=file.setting, path=str(file.path), is_roots=file.is_roots)


def findings_to(found: Sequence[Finding]) -> list[pb.Finding]:
    """Findings as messages, the serious ones first."""
    return [write(pb.Finding, one) for one in sorted(found, key=lambda one: not one.critical)]


def findings_of(answer: pb.ListFindingsResponse) -> list[Finding]:
    """Findings from messages."""
    return [read(Finding, one) for one in answer.findings]


def findings_servicer(own: LocalFindings) -> tuple[str, AddServicer]:
    """The service's name, and the function that adds it to a server."""
    return NAME, partial(add_FindingsServiceServicer_to_server, own)
