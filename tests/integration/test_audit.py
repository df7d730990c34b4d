"""The permissions of users, the changes of operators and refused calls, over all snodes."""

import asyncio
from pathlib import Path

import grpc
import pytest

from ortoo.client import Forbidden, Message, NotFound, TransactionCheck, TransactionVerdict, connect
from ortoo.v1 import settings_pb2
from ortoo.v1.settings_pb2_grpc import SettingsServiceStub
from ortoo.verification.servers import command
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from ortoo.verification.servers.valkey import valkey
from tests.integration.guarded_cluster import RULES, SECRET, as_user, guarded, signed


async def test_a_change_is_recorded_with_its_user_and_object(tmp_path: Path) -> None:
    """A refused change is a refused call and no change; a failed one has its error. Secrets are in no entry."""
    async with (
        guarded(tmp_path, insecure=True) as cluster,
        as_user(cluster, "ann") as ann,
        as_user(cluster, "shop") as shop,
        asyncio.timeout(60),
    ):
        await ann.admin.create_topic("orders")
        await ann.admin.users.put("new", secret_key="very secret")
        with pytest.raises(NotFound):
            await ann.admin.delete_topic("missing")
        for _ in range(3):
            with pytest.raises(Forbidden):
                await shop.admin.delete_topic("orders")
        async with as_user(cluster, "shop", "wrong") as unknown:
            with pytest.raises(Forbidden):
                await unknown.admin.describe_topic("t")
        changes = await ann.admin.users.list_audit_entries()
        assert [(one.user, one.method.partition("/")[2], one.target) for one in changes.entries] == [
            ("ann", "DeleteTopic", "name=missing"),
            ("ann", "PutUser", "user.access_key=new"),
            ("ann", "CreateTopic", "name=orders"),
        ]
        assert "missing" in changes.entries[0].error
        assert not changes.entries[1].error
        assert {one.snode for one in changes.entries} == {"snode-0"}
        assert {one.peer for one in changes.entries} == {"127.0.0.1"}
        await update_log_level(cluster, "debug")
        with pytest.raises(grpc.aio.AioRpcError):
            await update_log_level(cluster, "loud")
        changes = await ann.admin.users.list_audit_entries()
        assert [one.method for one in changes.entries][:2] == [
            "SettingsService/UpdateSettings",
            "AdminService/DeleteTopic",
        ]
        assert changes.entries[0].user == "ann"
        refused = await ann.admin.users.list_audit_entries(refused=True)
        found = {(one.user, one.method): one for one in refused.entries}
        assert found["shop", "AdminService/DeleteTopic"].count == 3
        assert "not an admin" in found["shop", "AdminService/DeleteTopic"].error
        assert "signature of 'shop'" in found["", "AdminService/DescribeTopic"].error
        assert "very secret" not in str(changes) + str(refused)
        with pytest.raises(Forbidden):
            await shop.admin.users.list_audit_entries()


async def test_verdicts_and_recalls_of_an_admin_are_recorded(tmp_path: Path) -> None:
    """With their user and object. Those of a producer are not changes of an operator."""
    async with (
        guarded(tmp_path) as cluster,
        as_user(cluster, "ann") as ann,
        as_user(cluster, "shop") as shop,
        asyncio.timeout(60),
        ann.producer("t") as producer,
    ):
        due_ms = cluster.clock.now_ms() + 3_600_000
        handles = [(await producer.send(Message(b"x", deliver_at_ms=due_ms))).recall_handle for _ in range(2)]
        await shop.recall(handles[0])
        await ann.recall(handles[1])
        async with ann.transactional_producer("t", "p", unknown) as sender:
            begun = await sender.begin(Message(b"forgotten"))
        await ann.admin.end_transaction(begun.transaction_id, TransactionVerdict.ROLLBACK)
        changes = await ann.admin.users.list_audit_entries()
        verdict, recall = changes.entries
        assert (verdict.user, verdict.method) == ("ann", "ProducerService/EndTransaction")
        assert (recall.user, recall.method) == ("ann", "ProducerService/RecallMessage")
        assert verdict.target.startswith(f"transaction_id={begun.transaction_id[:100]}")
        assert recall.target.startswith(f"recall_handle={handles[1][:100]}")


async def unknown(check: TransactionCheck) -> TransactionVerdict:
    """Leave the transaction without a verdict."""
    return TransactionVerdict.UNKNOWN


async def update_log_level(cluster: InProcessCluster, level: str) -> None:
    """Set the log level of one snode as an admin who calls this snode alone."""
    request = settings_pb2.UpdateSettingsRequest(role="snode", local_only=True, values={"log_level": level})
    stub = SettingsServiceStub(cluster.channels.channel_to(cluster.address))
    await stub.UpdateSettings(request, metadata=signed(cluster, "ann"))


async def test_permissions_are_listed_in_pages(tmp_path: Path) -> None:
    """As in the access file, by access key. Without a file every caller may do everything."""
    async with guarded(tmp_path) as cluster, as_user(cluster, "ann") as ann, asyncio.timeout(60):
        found = await ann.admin.users.list_permissions()
        assert found.access_file.endswith("access.toml")
        assert [(one.access_key, one.admin) for one in found.users] == [
            ("ann", True),
            ("reader", False),
            ("shop", False),
        ]
        assert {one.name: one.grant for one in found.users[2].groups} == {"g": "SUB", "g-tick": "SUB", "closed": "DENY"}
        page = await ann.admin.users.list_permissions(after="ann", limit=1)
        assert [one.access_key for one in page.users] == ["reader"]
    (tmp_path / "open").mkdir()
    async with open_cluster(tmp_path / "open") as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        assert await mq.admin.users.list_permissions() == type(found)("", (), ())
        shown = await command.run(["ortoo", "user", "permissions"], cluster.address)
        assert "every caller may do everything" in shown.stdout


async def test_roles_are_listed_and_apply_when_the_file_changes(tmp_path: Path) -> None:
    """A change of a role is a change for its users: it is shown, and allows and refuses calls, without a restart."""
    async with (
        guarded(tmp_path) as cluster,
        as_user(cluster, "ann") as ann,
        as_user(cluster, "reader") as reader,
        asyncio.timeout(60),
    ):
        file = tmp_path / "access.toml"
        roles = '[[role]]\nname = "support"\ntopics = { u = "BROWSE" }\n[[role]]\nname = "watch"\nobserver = true\n'
        users = RULES.replace('access_key = "reader"', 'access_key = "reader"\nroles = ["support", "watch"]')
        assert (await ann.admin.users.list_roles()).roles == ()
        with pytest.raises(Forbidden):
            await reader.admin.describe_topic("u")
        file.write_text(roles + users)
        while not (listed := (await ann.admin.users.list_roles()).roles):
            await cluster.clock.sleep(0.1)
        await reader.admin.describe_topic("u")
        assert (await reader.admin.users.describe_access(topics=["u"])).topics[0].browse
        assert [(one.name, one.observer, one.user_count) for one in listed] == [
            ("support", False, 1),
            ("watch", True, 1),
        ]
        assert (await ann.admin.users.list_roles(after="support", limit=1)).roles == listed[1:]
        support = await ann.admin.users.describe_role("support")
        assert (support.role, support.access_keys) == (listed[0], ("reader",))
        permissions = {one.access_key: one for one in (await ann.admin.users.list_permissions()).users}
        assert (permissions["reader"].roles, permissions["reader"].observer) == (("support", "watch"), True)
        assert permissions["shop"].roles == ()
        for words, shown in (
            (["role", "list"], "u=BROWSE"),
            (["role", "describe", "support"], "users: reader"),
            (["user", "permissions"], "support, watch"),
        ):
            assert shown in (await command.run(["ortoo", *words], cluster.address, user=("ann", SECRET))).stdout
        access = await command.run(["ortoo", "user", "access"], cluster.address, user=("reader", SECRET))
        assert access.stdout.startswith("reader: observer. --topic and --group show")
        shop = await command.run(["ortoo", "user", "access"], cluster.address, user=("shop", SECRET))
        assert shop.stdout.startswith("shop: neither admin nor observer.")
        with pytest.raises(NotFound, match="it has support, watch"):
            await ann.admin.users.describe_role("missing")
        with pytest.raises(Forbidden):
            await reader.admin.users.list_roles()
        file.write_text(roles.replace("BROWSE", "DENY") + users.replace(', "watch"', ""))
        while (await ann.admin.users.describe_role("watch")).access_keys:
            await cluster.clock.sleep(0.1)
        with pytest.raises(Forbidden):
            await reader.admin.describe_topic("u")


async def test_a_snode_without_an_access_file_has_no_roles(tmp_path: Path) -> None:
    """The error names the reason, and no file that does not exist."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        with pytest.raises(NotFound, match="this snode has no access_file"):
            await mq.admin.users.describe_role("support")


async def test_entries_of_all_snodes_are_listed(tmp_path: Path) -> None:
    """Each snode has its own, and any of them lists all, the latest first."""
    async with valkey(tmp_path / "valkey") as store, asyncio.timeout(90):
        settings = {"snode": {"redis_url": store.url}}
        async with open_cluster(tmp_path, snodes=2, settings=settings) as cluster:

            async def create(snode: str, topic: str) -> None:
                async with connect(cluster.address_of(snode)) as mq:
                    await mq.admin.create_topic(topic)

            await create("snode-0", "first")
            await create("snode-1", "second")
            async with connect(cluster.address_of("snode-0")) as mq:
                both = await mq.admin.users.list_audit_entries()
                assert [(one.snode, one.target) for one in both.entries] == [
                    ("snode-1", "name=second"),
                    ("snode-0", "name=first"),
                ]
                shown = await command.run(["ortoo", "audit", "--limit", "1"], cluster.address_of("snode-1"))
                assert "name=second" in shown.stdout
                assert "name=first" not in shown.stdout


async def test_disks_of_all_enodes_are_listed(tmp_path: Path) -> None:
    """Free space and inodes of each, and the reason for one that does not answer."""
    async with open_cluster(tmp_path, enodes=2) as cluster, connect(cluster.address) as mq, asyncio.timeout(90):
        await cluster.create_topic("t", queues=1)
        async with mq.producer("t") as producer:
            await producer.send(Message(b"x"))
        while True:
            first, second = await mq.admin.replicas.list_disks()
            if first.disk is not None and second.disk is not None:
                break
            await cluster.clock.sleep(0.1)
        assert (first.enode, second.enode) == ("enode-0", "enode-1")
        assert first.disk is not None
        assert 0 < first.disk.free_bytes <= first.disk.size_bytes
        shown = await command.run(["ortoo", "enode", "disks", "enode-0"], cluster.address)
        assert shown.exit_code == 0, shown.stderr
        assert "GiB" in shown.stdout
        with pytest.raises(NotFound, match="no enode"):
            await mq.admin.replicas.list_disks("missing")
        await cluster.close("enode-1")
        _, away = await mq.admin.replicas.list_disks()
        assert (away.enode, away.disk) == ("enode-1", None)
        assert away.error
