"""SettingsService of a process that reports only its own settings."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ortoo.common.cluster.dynamic_settings import DynamicSettings
from ortoo.common.errors import Invalid
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.messages import write
from ortoo.common.grpc.server import AddServicer
from ortoo.common.process.settings import Setting, SettingChange
from ortoo.v1 import settings_pb2 as pb
from ortoo.v1.settings_pb2_grpc import SettingsServiceServicer, add_SettingsServiceServicer_to_server

NAME = pb.DESCRIPTOR.services_by_name["SettingsService"].full_name


@dataclass(eq=False)
class LocalSettings(SettingsServiceServicer):
    """Shows and changes the settings of this process."""

    role: str
    """`namesrv`, `enode` or `snode`."""
    live: DynamicSettings[Any]

    async def ListSettings(  # noqa: N802  # gRPC's name
        self, request: pb.ListSettingsRequest, context: Context
    ) -> pb.ListSettingsResponse:
        """The settings in force."""
        self.check_role(request.role)
        return pb.ListSettingsResponse(processes=[self._row(settings=self.live.all())])

    async def UpdateSettings(  # noqa: N802  # gRPC's name
        self, request: pb.UpdateSettingsRequest, context: Context
    ) -> pb.UpdateSettingsResponse:
        """Change live settings."""
        self.check_role(request.role)
        by = request.changed_by or context.peer()
        changes = self.live.update(dict(request.values), request.reset, changed_by=by, dry_run=request.dry_run)
        return pb.UpdateSettingsResponse(processes=[self._row(changes=changes)])

    async def ListSettingChanges(  # noqa: N802  # gRPC's name
        self, request: pb.ListSettingChangesRequest, context: Context
    ) -> pb.ListSettingChangesResponse:
        """The changes since the start."""
        self.check_role(request.role)
        return pb.ListSettingChangesResponse(processes=[self._row(changes=self.live.history)])

    def check_role(self, role: str) -> None:
        """Refuse to answer for another role. Errors: Invalid."""
        if role not in ("", self.role):
            raise Invalid(
                f"{role!r}; this process answers only for {self.role!r}; send the request to a snode", field="role"
            )

    def _row(self, settings: Iterable[Setting] = (), changes: Iterable[SettingChange] = ()) -> pb.ProcessSettings:
        return pb.ProcessSettings(
            role=self.role,
            name=self.live.settings.name,
            settings=[write(pb.Setting, one) for one in settings],
            changes=[write(pb.SettingChange, one) for one in changes],
        )


def settings_servicer(role: str, live: DynamicSettings[Any]) -> tuple[str, AddServicer]:
    """The service's name, and the function that adds it to a server."""
    return NAME, partial(add_SettingsServiceServicer_to_server, LocalSettings(role, live))
