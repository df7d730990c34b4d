"""The operator's calls, for programs without an event loop."""

from ortoo.client.admin.admin import Admin as AsyncAdmin
from ortoo.client.admin.enodes.replicas import ReplicaAdmin as AsyncReplicaAdmin
from ortoo.client.admin.groups import GroupAdmin as AsyncGroupAdmin
from ortoo.client.admin.schedules import ScheduleAdmin as AsyncScheduleAdmin
from ortoo.client.admin.sinks import SinkAdmin as AsyncSinkAdmin
from ortoo.client.admin.users import UserAdmin as AsyncUserAdmin
from ortoo.client.blocking.facade import BlockingFacade, blocking, iterating
from ortoo.client.blocking.loop_thread import LoopThread


class BlockingGroupAdmin(BlockingFacade[AsyncGroupAdmin]):
    """An operator's calls about groups and clients; see `ortoo.client.GroupAdmin`."""

    describe = blocking(AsyncGroupAdmin.describe)
    update = blocking(AsyncGroupAdmin.update)
    lag_history = blocking(AsyncGroupAdmin.lag_history)
    list_consumers = blocking(AsyncGroupAdmin.list_consumers)
    list_topic_groups = blocking(AsyncGroupAdmin.list_topic_groups)
    describe_topic_groups = blocking(AsyncGroupAdmin.describe_topic_groups)
    set_delivery_mode = blocking(AsyncGroupAdmin.set_delivery_mode)
    list_delivery_modes = blocking(AsyncGroupAdmin.list_delivery_modes)
    reset_offsets = blocking(AsyncGroupAdmin.reset_offsets)
    park_messages = blocking(AsyncGroupAdmin.park_messages)
    clone_offsets = blocking(AsyncGroupAdmin.clone_offsets)
    list_clients = blocking(AsyncGroupAdmin.list_clients)
    describe_client = blocking(AsyncGroupAdmin.describe_client)
    print_stack = blocking(AsyncGroupAdmin.print_stack)
    consume_directly = blocking(AsyncGroupAdmin.consume_directly)


class BlockingReplicaAdmin(BlockingFacade[AsyncReplicaAdmin]):
    """An operator's calls about the replicas of enodes; see `ortoo.client.ReplicaAdmin`."""

    list = blocking(AsyncReplicaAdmin.list)
    transfer_leadership = blocking(AsyncReplicaAdmin.transfer_leadership)
    elect = blocking(AsyncReplicaAdmin.elect)
    add = blocking(AsyncReplicaAdmin.add)
    remove = blocking(AsyncReplicaAdmin.remove)
    accept_store = blocking(AsyncReplicaAdmin.accept_store)
    forget = blocking(AsyncReplicaAdmin.forget)


class BlockingScheduleAdmin(BlockingFacade[AsyncScheduleAdmin]):
    """An operator's calls about schedules of recurring messages; see `ortoo.client.ScheduleAdmin`."""

    create = blocking(AsyncScheduleAdmin.create)
    list = blocking(AsyncScheduleAdmin.list)
    describe = blocking(AsyncScheduleAdmin.describe)
    suspend = blocking(AsyncScheduleAdmin.suspend)
    resume = blocking(AsyncScheduleAdmin.resume)
    delete = blocking(AsyncScheduleAdmin.delete)


class BlockingSinkAdmin(BlockingFacade[AsyncSinkAdmin]):
    """An operator's calls about exactly-once sinks; see `ortoo.client.SinkAdmin`."""

    list = blocking(AsyncSinkAdmin.list)
    reset = blocking(AsyncSinkAdmin.reset)


class BlockingUserAdmin(BlockingFacade[AsyncUserAdmin]):
    """An operator's calls about users; see `ortoo.client.UserAdmin`."""

    list = blocking(AsyncUserAdmin.list)
    describe_access = blocking(AsyncUserAdmin.describe_access)
    put = blocking(AsyncUserAdmin.put)
    delete = blocking(AsyncUserAdmin.delete)


class BlockingAdmin(BlockingFacade[AsyncAdmin]):
    """An operator's calls; see `ortoo.client.Admin`."""

    def __init__(self, thread: LoopThread, wrapped: AsyncAdmin) -> None:
        """Applications use `Client.admin`."""
        super().__init__(thread, wrapped)
        self.groups = BlockingGroupAdmin(thread, wrapped.groups)
        """Calls about groups and clients."""
        self.replicas = BlockingReplicaAdmin(thread, wrapped.replicas)
        """Calls about the replicas of enodes."""
        self.schedules = BlockingScheduleAdmin(thread, wrapped.schedules)
        """Calls about schedules of recurring messages."""
        self.sinks = BlockingSinkAdmin(thread, wrapped.sinks)
        """Calls about exactly-once sinks."""
        self.users = BlockingUserAdmin(thread, wrapped.users)
        """Calls about users."""

    create_topic = blocking(AsyncAdmin.create_topic)
    ensure_topic = blocking(AsyncAdmin.ensure_topic)
    list_topics = blocking(AsyncAdmin.list_topics)
    describe_topic = blocking(AsyncAdmin.describe_topic)
    describe_topics = blocking(AsyncAdmin.describe_topics)
    update_topic = blocking(AsyncAdmin.update_topic)
    delete_topic = blocking(AsyncAdmin.delete_topic)
    undelete_topic = blocking(AsyncAdmin.undelete_topic)
    list_deleted_topics = blocking(AsyncAdmin.list_deleted_topics)
    trim_topic = blocking(AsyncAdmin.trim_topic)
    purge_topic = blocking(AsyncAdmin.purge_topic)
    list_orphaned_topics = blocking(AsyncAdmin.list_orphaned_topics)
    adopt_topics = blocking(AsyncAdmin.adopt_topics)
    list_groups = blocking(AsyncAdmin.list_groups)
    describe_group = blocking(AsyncAdmin.describe_group)
    put_group = blocking(AsyncAdmin.put_group)
    delete_group = blocking(AsyncAdmin.delete_group)
    undelete_group = blocking(AsyncAdmin.undelete_group)
    list_deleted_groups = blocking(AsyncAdmin.list_deleted_groups)
    describe_lag = blocking(AsyncAdmin.describe_lag)
    describe_cluster = blocking(AsyncAdmin.describe_cluster)
    count_consumers = blocking(AsyncAdmin.count_consumers)
    find_messages = blocking(AsyncAdmin.find_messages)
    list_delayed = blocking(AsyncAdmin.list_delayed)
    list_transactions = blocking(AsyncAdmin.list_transactions)
    end_transaction = blocking(AsyncAdmin.end_transaction)
    resume_transaction = blocking(AsyncAdmin.resume_transaction)
    tail = iterating(AsyncAdmin.tail)
    tail_last = iterating(AsyncAdmin.tail_last)
    tail_from = iterating(AsyncAdmin.tail_from)
    list_dead_letters = iterating(AsyncAdmin.list_dead_letters)
    replay_dead_letters = iterating(AsyncAdmin.replay_dead_letters)
    peek = blocking(AsyncAdmin.peek)
