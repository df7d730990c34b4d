"""SettingsService of a snode: it queries or changes the processes of a role."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from ortoo.common.cluster.dynamic_settings import DynamicSettings
from ortoo.common.errors import Invalid, NotFound, OrtooError, Unavailable
from ortoo.common.errors.status import rpc_errors
from ortoo.common.grpc.channels import Channels
from ortoo.common.grpc.errors import Context
from ortoo.common.telemetry.settings_service import NAME as NAME
from ortoo.common.telemetry.settings_service import LocalSettings
from ortoo.snode.cluster import ClusterView
from ortoo.snode.policy import Policy
from ortoo.snode.policy.principal import PRINCIPAL
from ortoo.snode.rpc.operators.replicas import enode_processes
from ortoo.v1 import settings_pb2 as pb
from ortoo.v1.settings_pb2_grpc import SettingsServiceServicer, SettingsServiceStub

TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class TargetProcess:
    """A process whose settings are queried or changed."""

    role: str
    name: str
    """Empty if only the process itself knows it."""
    address: str
    alive: bool = True
    clients_address: str = ""
    """For a snode: its address for clients, shared by its workers."""


@dataclass(eq=False)
class ClusterSettings(SettingsServiceServicer):
    """The service that shows and changes settings of this process or of all processes of a role.

    All processes are queried at once, each with a timeout.
    """

    own: DynamicSettings[Any]
    cluster: ClusterView
    channels: Channels
    policy: Policy

    async def ListSettings(self, request: pb.ListSettingsRequest, context: Context) -> pb.ListSettingsResponse:
        """The settings in force in this process, or in every process of a role."""
        return pb.ListSettingsResponse(processes=await self._query_all(request, context, "ListSettings"))

    async def ListSettingChanges(
        self, request: pb.ListSettingChangesRequest, context: Context
    ) -> pb.ListSettingChangesResponse:
        """The changes of settings in this process, or in every process of a role."""
        return pb.ListSettingChangesResponse(processes=await self._query_all(request, context, "ListSettingChanges"))

    async def UpdateSettings(self, request: pb.UpdateSettingsRequest, context: Context) -> pb.UpdateSettingsResponse:
        """Change settings of all chosen processes; if one process would refuse the change, none is changed."""
        request.changed_by = PRINCIPAL.get().user or request.changed_by or context.peer()
        if request.local_only:
            return await LocalSettings("snode", self.own).UpdateSettings(request, context)
        is_check = request.dry_run
        request.dry_run = True
        rows = await self._query_all(request, context, "UpdateSettings", all_or_error=True)
        if not is_check:
            request.dry_run = False
            rows = await self._query_all(request, context, "UpdateSettings")
        return pb.UpdateSettingsResponse(processes=rows)

    async def _query_all(
        self, request: Any, context: Context, method: str, *, all_or_error: bool = False
    ) -> list[pb.ProcessSettings]:
        """The answers of the chosen processes, possibly errors. With `all_or_error`, raises the first error."""
        if request.local_only:
            answer = await getattr(LocalSettings("snode", self.own), method)(request, context)
            return list(answer.processes)
        processes = await self._processes(request.role)
        if request.role == "namesrv" and request.process and request.process not in {one.address for one in processes}:
            processes = await asyncio.gather(*(self._with_name(one, context) for one in processes))
        chosen = [one for one in processes if request.process in ("", one.name, one.address, one.clients_address)]
        if not chosen:
            target = f"{request.role} {request.process}".strip()
            raise NotFound(f"there is no {target}; `ortoo cluster` lists the processes", field="process")
        local_request = type(request)()
        local_request.CopyFrom(request)
        local_request.local_only, local_request.process = True, ""
        return await asyncio.gather(
            *(self._query_one(one, local_request, context, method, all_or_error) for one in chosen)
        )

    async def _query_one(
        self, process: TargetProcess, request: Any, context: Context, method: str, raises: bool
    ) -> pb.ProcessSettings:
        try:
            return await self._call_process(process, request, context, method)
        except OrtooError as error:
            if raises:
                message = f"{process.role} {process.name or process.address}: {error.message}; nothing was changed"
                raise type(error)(message, field=error.field) from None
            return pb.ProcessSettings(role=process.role, name=process.name, address=process.address, error=str(error))

    async def _with_name(self, process: TargetProcess, context: Context) -> TargetProcess:
        """A name server with its name, if it answers. Only the process itself knows its name."""
        request = pb.ListSettingChangesRequest(local_only=True)
        return replace(
            process, name=(await self._query_one(process, request, context, "ListSettingChanges", False)).name
        )

    async def _call_process(
        self, process: TargetProcess, request: Any, context: Context, method: str
    ) -> pb.ProcessSettings:
        if process.role == "snode" and process.name == self.own.settings.name:
            answer = await getattr(LocalSettings("snode", self.own), method)(request, context)
            found: pb.ProcessSettings = answer.processes[0]
            found.address = process.address
            return found
        if not process.alive:
            raise Unavailable("the process is not running, or its lease has expired")
        channel = self.channels.channel_to(process.address)
        if process.role == "snode":
            channel = await self.policy.forwarding_channel(channel)
        with rpc_errors(f"{process.role} {process.name or process.address}", is_internal=True):
            answer = await getattr(SettingsServiceStub(channel), method)(request, timeout=TIMEOUT_S)
        found = answer.processes[0]
        found.address = process.address
        return found

    async def _processes(self, role: str) -> list[TargetProcess]:
        """All processes of a role: enodes by replica, name servers without names. Errors: Invalid."""
        match role:
            case "namesrv":
                return [TargetProcess(role, "", address) for address in self.cluster.name_server.servers.addresses]
            case "snode":
                known = {
                    one.name: TargetProcess(role, one.name, one.cluster_address or one.address, one.alive, one.address)
                    for one in self.cluster.directory.snodes()
                }
                own = TargetProcess(role, self.own.settings.name, "")
                # The order does not depend on the snode that answers.
                return [one for _, one in sorted({own.name: own, **known}.items())]
            case "enode":
                return [
                    TargetProcess(role, one.enode, one.address, one.alive)
                    for one in await enode_processes(self.cluster)
                ]
        raise Invalid(f"{role!r}; expected namesrv, enode or snode", field="role")
