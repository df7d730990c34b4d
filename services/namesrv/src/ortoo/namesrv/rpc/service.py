"""NameService: decodes requests, calls the directory or the catalog of users and named leases, encodes responses."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc

from ortoo.common.cluster.names import check_process_name
from ortoo.common.errors import Conflict, Fenced, Invalid, NotFound
from ortoo.common.errors.findings import Finding
from ortoo.common.grpc.cluster_token import ADMIN_TOKEN, check_admin_token
from ortoo.common.grpc.errors import Context
from ortoo.common.grpc.layers.arrival import headers_of
from ortoo.common.grpc.limits.list_pages import fill_page
from ortoo.common.grpc.messages import read, read_request, write
from ortoo.common.process.clock import Clock
from ortoo.namesrv.catalog.catalog import Catalog
from ortoo.namesrv.catalog.users import Users
from ortoo.namesrv.decisions.known_stores import EnodeLog
from ortoo.namesrv.decisions.orphaned_topics import StoredTopic
from ortoo.namesrv.decisions.process_leases import Enode, LeaseRefusals, Snode
from ortoo.namesrv.decisions.replicas import ReplicaReport
from ortoo.namesrv.decisions.routes.lite_pages import lite_page
from ortoo.namesrv.decisions.routes.route_changes import WatchStart
from ortoo.namesrv.decisions.topics import NewTopic
from ortoo.namesrv.directory.directory import Directory
from ortoo.namesrv.directory.elections import Elections
from ortoo.namesrv.directory.stores import StoresOfEnodes
from ortoo.namesrv.rpc import wire
from ortoo.namesrv.rpc.ordered_list import (
    OrderedList,
    key_of_deleted_group,
    key_of_deleted_topic,
    key_of_orphaned_topic,
    sort_names,
)
from ortoo.namesrv.rpc.route_encoding import RouteEncoder
from ortoo.v1 import group_deletion_pb2 as deletion_pb
from ortoo.v1 import lite_topics_pb2 as lite_pb
from ortoo.v1 import named_lease_pb2 as lease_pb
from ortoo.v1 import namesrv_pb2 as pb
from ortoo.v1 import orphaned_topics_pb2 as orphaned_pb
from ortoo.v1 import replica_admin_pb2 as admin_pb
from ortoo.v1 import replica_report_pb2 as report_pb
from ortoo.v1 import topic_pb2
from ortoo.v1.namesrv_pb2_grpc import NameServiceServicer, add_NameServiceServicer_to_server

NAME = "ortoo.v1.NameService"


def insecure_secrets_reason() -> Conflict:
    """The error for requests about users if every caller could read their secrets."""
    return Conflict(
        "every caller of this name server could read the secrets of its users. Give all roles one cluster_token_file "
        "or mutual TLS (tls_cluster_listen_address), or give name servers and snodes one admin_token_file. Set "
        "insecure = true only if the network keeps clients away from name servers",
        field="insecure",
    )


@dataclass(eq=False, repr=False)
class NameService(NameServiceServicer):
    """The directory of the cluster, for enodes, snodes and operators' tools."""

    directory: Directory
    elections: Elections
    stores: StoresOfEnodes
    catalog: Catalog
    clock: Clock
    admin_token: str = ""
    """The token that calls about secrets need; empty = none."""
    guarded: bool = False
    """Whether every caller is authenticated as part of the cluster."""
    keeps_secrets_open: bool = False
    """Whether every caller could read the secrets of users, and no operator has accepted it."""
    _refusals: LeaseRefusals = field(default_factory=LeaseRefusals, init=False)
    _encoders: dict[bool, RouteEncoder] = field(
        default_factory=lambda: {one: RouteEncoder(with_placement_sets=one) for one in (False, True)}, init=False
    )
    """The encoders of the routes without and with sets of placements."""

    def __post_init__(self) -> None:
        known, version = self.directory, lambda: self.directory.lists_version
        self._deleted_topics = OrderedList(
            lambda: known.deleted_topics(), key_of_deleted_topic, wire.deleted_to, version
        )
        self._deleted_groups = OrderedList(
            lambda: known.deleted_groups(), key_of_deleted_group, partial(write, deletion_pb.DeletedGroup), version
        )
        self._orphaned_topics = OrderedList(
            lambda: known.orphaned_topics(), key_of_orphaned_topic, partial(write, orphaned_pb.OrphanedTopic), version
        )

    def findings(self) -> Iterator[Finding]:
        """Yield a finding for each process that was refused a lease."""
        return self._refusals.findings(self.clock.monotonic_s())

    @contextlib.contextmanager
    def _recording_refusals(self, process: str) -> Iterator[None]:
        """Remember whether a process got its lease."""
        try:
            yield
        except (Conflict, Fenced) as error:
            self._refusals.record_refusal(process, error, self.clock.monotonic_s())
            raise
        self._refusals.record_acceptance(process)

    async def RegisterEnode(self, request: pb.RegisterEnodeRequest, context: Context) -> pb.RegisterEnodeResponse:
        """Register an enode or renew its lease."""
        unknown = [read(StoredTopic, one) for one in request.unknown_topics]
        # Replicas come from their own reports, and this name server compares the directories.
        enode = read(Enode, request.enode, alive=True, replicas=(), other_directory_id="")
        log = read(EnodeLog, request.log) if request.HasField("log") else None
        with self._recording_refusals(f"enode {enode.name} at {enode.address}"):
            may_succeed = self.stores.is_acceptable(enode.name, enode.store_id, enode.made_from)
            self.directory.check_double(enode, may_succeed=may_succeed)
            self.stores.check(enode.name, enode.store_id, enode.made_from, log)
            unlisted, version = request.unlisted_topic_count, request.directory_version
            self.directory.register_enode(enode, request.directory_id, unknown, unlisted, version)
            await self.stores.note(enode.name, enode.store_id, log=log)
        return write(pb.RegisterEnodeResponse, self.directory, lease_ms=self.directory.lease_ms)

    async def RegisterSnode(self, request: pb.RegisterSnodeRequest, context: Context) -> pb.RegisterSnodeResponse:
        """Register a snode or renew its lease."""
        snode, shares = read(Snode, request.snode, alive=True), request.shares_membership
        with self._recording_refusals(f"snode {snode.name} at {snode.address}"):
            self.directory.register_snode(snode, request.incarnation, shares_membership=shares)
        return write(pb.RegisterSnodeResponse, self.directory, lease_ms=self.directory.lease_ms)

    async def Unregister(self, request: pb.UnregisterRequest, context: Context) -> pb.UnregisterResponse:
        """End a lease at once."""
        match request.WhichOneof("process"):
            case "enode":
                self.directory.unregister_enode(request.enode, request.epoch)
            case "snode":
                self.directory.unregister_snode(request.snode)
            case _:
                raise Invalid("no process is named; give the name of an enode or of a snode", field="process")
        return pb.UnregisterResponse()

    async def CreateTopic(self, request: pb.CreateTopicRequest, context: Context) -> pb.CreateTopicResponse:
        """Create a topic; an existing topic with the same properties is returned instead."""
        topic = await self.directory.create_topic(read_request(NewTopic, request))
        return pb.CreateTopicResponse(topic=wire.topic_to(topic))

    async def UpdateTopic(self, request: pb.UpdateTopicRequest, context: Context) -> pb.UpdateTopicResponse:
        """Change a topic."""
        topic = await self.directory.update_topic(wire.topic_change_of(request))
        return pb.UpdateTopicResponse(topic=wire.topic_to(topic))

    async def DeleteTopic(self, request: pb.DeleteTopicRequest, context: Context) -> pb.DeleteTopicResponse:
        """Delete a topic."""
        at_once, version = request.skip_grace_period, request.version
        deletion = await self.directory.delete_topic(request.name, skip_grace_period=at_once, version=version)
        return write(pb.DeleteTopicResponse, deletion)

    async def EndLiteTopics(
        self, request: lite_pb.EndLiteTopicsRequest, context: Context
    ) -> lite_pb.EndLiteTopicsResponse:
        """Close and delete unused lite topics."""
        close, delete = ({one.name: one.version for one in listed} for listed in (request.close, request.delete))
        wire.check_topics_at_once(len(close) + len(delete), "close")
        closed, deleted = await self.directory.end_lite_topics(close, delete)
        return lite_pb.EndLiteTopicsResponse(closed=map(wire.topic_to, closed), deleted=deleted)

    async def UndeleteTopic(self, request: pb.UndeleteTopicRequest, context: Context) -> pb.UndeleteTopicResponse:
        """Restore a deleted topic."""
        topic = await self.directory.undelete_topic(request.name, request.topic_id)
        return pb.UndeleteTopicResponse(topic=wire.topic_to(topic))

    async def ListDeletedTopics(
        self, request: pb.ListDeletedTopicsRequest, context: Context
    ) -> pb.ListDeletedTopicsResponse:
        """The deleted topics that can be restored, or a page of them."""
        response = pb.ListDeletedTopicsResponse()
        response.next_after = await self._deleted_topics.fill(response.topics, request, self.clock)
        return response

    async def ListOrphanedTopics(
        self, request: orphaned_pb.ListOrphanedTopicsRequest, context: Context
    ) -> orphaned_pb.ListOrphanedTopicsResponse:
        """The topics that enodes hold and the directory does not have, or a page of them."""
        response = orphaned_pb.ListOrphanedTopicsResponse(unlisted_count=self.directory.orphaned.unlisted_count)
        response.next_after = await self._orphaned_topics.fill(response.topics, request, self.clock)
        return response

    async def AdoptTopics(
        self, request: orphaned_pb.AdoptTopicsRequest, context: Context
    ) -> orphaned_pb.AdoptTopicsResponse:
        """Add topics that enodes hold and the directory lacks."""
        if bool(request.names) == request.all:
            raise Invalid("name the topics to adopt, or set all; not both", field="names")
        taken, refused = await self.directory.adopt_topics(tuple(request.names), all_possible=request.all)
        return orphaned_pb.AdoptTopicsResponse(
            topics=map(wire.topic_to, taken), refused=[write(orphaned_pb.OrphanedTopic, one) for one in refused]
        )

    async def GetTopic(self, request: pb.GetTopicRequest, context: Context) -> pb.GetTopicResponse:
        """One topic."""
        return pb.GetTopicResponse(topic=wire.topic_to(self.directory.topic(request.name)))

    async def GetTopics(self, request: topic_pb2.GetTopicsRequest, context: Context) -> topic_pb2.GetTopicsResponse:
        """Several topics by name or by id."""
        wire.check_topics_at_once(len(request.names) + len(request.topic_ids), "names")
        version, known = self.directory.version, self.directory.topics
        topics = [known[name] for name in request.names if name in known]
        if request.topic_ids:
            topics += await self.catalog.topics_by_id(request.topic_ids)
        return topic_pb2.GetTopicsResponse(
            topics=map(wire.topic_to, topics), version=version, directory_id=self.directory.directory_id
        )

    async def ListTopics(self, request: pb.ListTopicsRequest, context: Context) -> pb.ListTopicsResponse:
        """All topics, those of a parent, or a page of them."""
        names, topics = self.directory.sorted_names()[0], self.directory.topics
        await sort_names(names, self.clock)
        after, limit = request.after, request.limit
        page = lite_page(names, topics, request.parent, after, limit) if request.parent else names.page(after, limit)

        def row_of(name: str) -> topic_pb2.Topic | None:
            return wire.topic_to(topics[name]) if name in topics else None

        response = pb.ListTopicsResponse(version=self.directory.version)
        response.next_after = await fill_page(page, row_of, response.topics, request.limit, self.clock)
        return response

    async def PutGroup(self, request: pb.PutGroupRequest, context: Context) -> pb.PutGroupResponse:
        """Create or change a group."""
        asked, meant = wire.group_of(request.group), wire.selection_of(request)
        group = await self.directory.put_group(asked, create_only=request.create_only, selection=meant)
        return pb.PutGroupResponse(group=write(topic_pb2.Group, group))

    async def DeleteGroup(self, request: pb.DeleteGroupRequest, context: Context) -> pb.DeleteGroupResponse:
        """Delete a group."""
        deletion = await self.directory.delete_group(request.name, skip_grace_period=request.skip_grace_period)
        return write(pb.DeleteGroupResponse, deletion)

    async def UndeleteGroup(
        self, request: deletion_pb.UndeleteGroupRequest, context: Context
    ) -> deletion_pb.UndeleteGroupResponse:
        """Restore a deleted group."""
        group = await self.directory.undelete_group(request.name)
        return deletion_pb.UndeleteGroupResponse(group=write(topic_pb2.Group, group))

    async def ListDeletedGroups(
        self, request: deletion_pb.ListDeletedGroupsRequest, context: Context
    ) -> deletion_pb.ListDeletedGroupsResponse:
        """The deleted groups that can be restored, or a page of them."""
        response = deletion_pb.ListDeletedGroupsResponse()
        response.next_after = await self._deleted_groups.fill(response.groups, request, self.clock)
        return response

    async def ListGroups(self, request: pb.ListGroupsRequest, context: Context) -> pb.ListGroupsResponse:
        """All groups, or a page of them."""
        names, groups = self.directory.sorted_names()[1], self.directory.groups
        await sort_names(names, self.clock)
        page = ([request.name], "") if request.name else names.page(request.after, request.limit)

        def row_of(name: str) -> topic_pb2.Group | None:
            return write(topic_pb2.Group, groups[name]) if name in groups else None

        response = pb.ListGroupsResponse()
        response.next_after = await fill_page(page, row_of, response.groups, request.limit, self.clock)
        return response

    async def PutUser(self, request: pb.PutUserRequest, context: Context) -> pb.PutUserResponse:
        """Create or change a user."""
        self._check_token(context)
        if self.keeps_secrets_open:
            raise insecure_secrets_reason()
        asked = request.user
        enabled, now_ms = asked.enabled if asked.HasField("enabled") else None, self.clock.now_ms()
        user = await self.catalog.run_user_transaction(
            lambda users: users.put(asked.access_key, request.secret_key, enabled=enabled, now_ms=now_ms)
        )
        return pb.PutUserResponse(user=wire.user_to(user))

    async def DeleteUser(self, request: pb.DeleteUserRequest, context: Context) -> pb.DeleteUserResponse:
        """Delete a user."""
        self._check_token(context)
        await self.catalog.run_user_transaction(lambda users: users.delete(request.access_key))
        return pb.DeleteUserResponse()

    async def ListUsers(self, request: pb.ListUsersRequest, context: Context) -> pb.ListUsersResponse:
        """All users, without their secrets."""
        self._check_token(context)
        return pb.ListUsersResponse(users=map(wire.user_to, await self.catalog.run_user_transaction(Users.all)))

    async def GetUser(self, request: pb.GetUserRequest, context: Context) -> pb.GetUserResponse:
        """One user, with the secret."""
        self._check_token(context)
        user = await self.catalog.run_user_transaction(lambda users: users.get(request.access_key))
        return pb.GetUserResponse(user=wire.user_to(user), secret_key=user.secret_key)

    def _check_token(self, context: Context) -> None:
        check_admin_token(self.admin_token, headers_of(context).get(ADMIN_TOKEN, ""))

    async def AcquireNamedLease(
        self, request: lease_pb.AcquireNamedLeaseRequest, context: Context
    ) -> lease_pb.AcquireNamedLeaseResponse:
        """Grant or renew an exclusive right."""
        right = await self.catalog.run_lease_transaction(
            lambda rights: rights.acquire(request.resource, request.owner, request.lease_ms)
        )
        return lease_pb.AcquireNamedLeaseResponse(epoch=right.epoch, lease_ms=right.remaining_ms)

    async def ReleaseNamedLease(
        self, request: lease_pb.ReleaseNamedLeaseRequest, context: Context
    ) -> lease_pb.ReleaseNamedLeaseResponse:
        """Release a right."""
        await self.catalog.run_lease_transaction(
            lambda rights: rights.release(request.resource, request.owner, request.epoch)
        )
        return lease_pb.ReleaseNamedLeaseResponse()

    async def ReportReplica(
        self, request: report_pb.ReportReplicaRequest, context: Context
    ) -> report_pb.ReportReplicaResponse:
        """Store a replica's report, and return the proposed leader."""
        report = read(ReplicaReport, request)
        with self._recording_refusals(
            f"replica {report.replica.number} of enode {report.enode} at {report.replica_address}"
        ):
            self.stores.check_report(report)
            members = await self.elections.report(report)
            if report.set_id:
                await self.stores.note_replicas(members)
        return wire.report_response(members, self.elections.current_proposal(members))

    async def ListReplicas(
        self, request: admin_pb.ListReplicasRequest, context: Context
    ) -> admin_pb.ListReplicasResponse:
        """The replicas of one enode, or of all enodes."""
        sets = [self.elections.get(request.enode)] if request.enode else self.elections.sets()
        now_s = self.clock.monotonic_s()
        return admin_pb.ListReplicasResponse(
            enodes=[wire.replica_set_to(one, self.elections.proposal(one.enode), now_s) for one in sets]
        )

    async def ElectReplica(
        self, request: admin_pb.ElectReplicaRequest, context: Context
    ) -> admin_pb.ElectReplicaResponse:
        """Propose the replica that an operator chose as leader."""
        chosen = request.replica
        proposal = await self.elections.elect(request.enode, chosen.number, chosen.disk)
        return admin_pb.ElectReplicaResponse(proposal=write(report_pb.Proposal, proposal))

    async def AcceptStore(self, request: admin_pb.AcceptStoreRequest, context: Context) -> admin_pb.AcceptStoreResponse:
        """Permit another store to replace the registered store of an enode."""
        former = await self.stores.accept(request.enode, request.store_id)
        return admin_pb.AcceptStoreResponse(former_store_id=former)

    async def ForgetEnode(self, request: admin_pb.ForgetEnodeRequest, context: Context) -> admin_pb.ForgetEnodeResponse:
        """Remove an enode that does not come back."""
        name = request.enode
        check_process_name(name, "enode")
        known, reporting = self.stores.find(name), self.elections.reporting(name)
        if known is None and all(one[:2] != ("enode", name) for one in self.directory.processes()):
            raise NotFound(f"there is no enode {name!r}; `ortoo cluster` shows the expected enodes", field="enode")
        if reporting:
            raise Conflict(f"replicas {reporting} of enode {name!r} report; stop them, then retry", field="enode")
        replicas = ", ".join(f"replica {one.number} (disk {one.disk})" for one in known.replicas) if known else ""
        forgotten = await self.directory.forget_enode(name, lose=request.lose, replicas=replicas)
        await self.stores.forget(name)
        return write(admin_pb.ForgetEnodeResponse, forgotten)

    async def WatchRoutes(  # type: ignore[override]  # `add_name_service` registers it
        self, request: pb.WatchRoutesRequest, context: Context
    ) -> AsyncIterator[bytes]:
        """Send the complete directory or the changes since a version, then every change, as encoded messages."""
        if request.include_handle_keys and not self.guarded:
            self._check_token(context)
        encoder, watches = self._encoders[request.accepts_placement_sets], self.directory.watches
        start = read(WatchStart, request, lite_scope=wire.lite_scope_of(request))
        async with contextlib.aclosing(watches.watch(start)) as changes:
            async for change in changes:
                if start.lite_scope is None:
                    watches.check_complete()
                if not request.accepts_placement_sets:
                    watches.check_expandable()
                for message in encoder.messages(change, include_handle_keys=request.include_handle_keys):
                    yield message


def add_name_service(server: Any, servicer: NameService) -> None:
    """Add the service to a server. The handler of its watch returns encoded messages, which all watchers share."""
    watch = grpc.unary_stream_rpc_method_handler(servicer.WatchRoutes, pb.WatchRoutesRequest.FromString, bytes)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, {"WatchRoutes": watch}),))
    add_NameServiceServicer_to_server(servicer, server)
