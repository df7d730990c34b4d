"""Requests and replies by the client, through real services in this process."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ortoo.client import (
    App,
    Client,
    Consumer,
    ConsumerSettings,
    Forbidden,
    Invalid,
    Message,
    Overloaded,
    PopConsumer,
    PoppedMessage,
    PopSettings,
    PullSettings,
    ReceivedMessage,
    RequestTimeout,
    Unsupported,
    blocking,
    connect,
)
from ortoo.common.groups.requests import reply_address
from ortoo.common.process.background import Background
from ortoo.v1 import client_pb2, reply_pb2, session_pb2
from ortoo.v1.reply_pb2_grpc import ReplyServiceStub
from ortoo.verification.servers.cluster import InProcessCluster, open_cluster
from tests.integration.guarded_cluster import as_user, guarded
from tests.integration.session_client import SessionClient
from tests.integration.snode_calls import Snode, open_snode_cluster
from tests.integration.test_two_snodes import two_snodes

Handler = Callable[[PoppedMessage], Awaitable[None]]


@contextlib.asynccontextmanager
async def served(mq: Client, handler: Handler, topic: str = "t", concurrency: int = 16) -> AsyncIterator[PopConsumer]:
    """A group that handles the messages of a topic during the block."""
    settings = PopSettings(invisible_ms=60_000)
    async with mq.pop_consumer("g", topic, settings=settings) as consumer, Background("served") as background:
        background.spawn("run", consumer.run(handler, concurrency=concurrency))
        yield consumer


async def echo(message: PoppedMessage) -> None:
    """Reply with the body of the request."""
    await message.reply(b"re: " + message.body)


async def test_a_reply_has_all_fields_of_its_message(tmp_path: Path) -> None:
    """The replier sees RocketMQ's properties, the requester gets body, tag, keys and properties of the reply."""
    seen: list[PoppedMessage] = []

    async def handle(message: PoppedMessage) -> None:
        seen.append(message)
        assert await message.reply(Message(b"yes", tag="a", keys=("k",), properties={"p": "v"}))

    async with open_cluster(tmp_path) as cluster, connect(cluster.address, client_id="shop-1") as mq:
        await cluster.create_topic("t")
        async with served(mq, handle), mq.producer("t") as producer, asyncio.timeout(60):
            reply = await producer.request(Message(b"?", properties={"own": "1"}), timeout_s=30)
        assert (reply.body, reply.tag, reply.keys, dict(reply.properties)) == (b"yes", "a", ("k",), {"p": "v"})
        [message] = seen
        assert message.request is not None
        assert len(message.request.correlation_id) == 32
        assert message.properties["REPLY_TO_CLIENT"].startswith("shop-1@")
        assert message.properties["TTL"] == "30000"
        assert "CORRELATION_ID" not in message.message().properties, "so that it can be sent again"
        assert message.message().properties["own"] == "1"


async def test_requests_and_replies_have_the_sizes_of_messages(tmp_path: Path) -> None:
    """A body of 4 MiB passes in both directions, and one byte more is refused before it is sent."""
    body = bytes(range(256)) * (1 << 14)

    async def handle(message: PoppedMessage) -> None:
        with pytest.raises(Invalid, match="4194305 bytes"):
            await message.reply(message.body + b"1")
        await message.reply(message.body)

    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        await cluster.create_topic("t")
        async with served(mq, handle), mq.producer("t") as producer:
            with pytest.raises(Invalid, match="4194305 bytes"):
                await producer.request(body + b"1", timeout_s=30)
            assert (await producer.request(body, timeout_s=50)).body == body


async def test_push_and_pull_consumers_reply_and_messages_without_request_do_not(tmp_path: Path) -> None:
    """`reply` is the same for all consumers; it refuses a message that is no request, or was read by `fetch`."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        for topic in ("t", "u"):
            await cluster.create_topic(topic, queues=1)

        async def handle(message: ReceivedMessage) -> None:
            if message.request is not None:
                await message.reply(message.topic.encode())

        async def pushing(consumer: Consumer) -> None:
            await consumer.run(handle)

        async with (
            mq.consumer("g", ["t"], ConsumerSettings(from_beginning=True)) as pushed,
            mq.pull_consumer("h", ["u"], PullSettings(from_beginning=True)) as pulled,
            Background("consumers") as background,
            mq.producer("t") as first,
            mq.producer("u") as second,
        ):
            background.spawn("push", pushing(pushed))
            background.spawn("pull", pulled.run(handle))
            assert (await first.request(b"?", timeout_s=50)).body == b"t"
            assert (await second.request(b"?", timeout_s=50)).body == b"u"
            receipt = await first.send(b"plain")
        async for batch in mq.fetch(receipt.queue):
            for message in batch:
                with pytest.raises(Invalid if message.request is None else Unsupported):
                    await message.reply(b"no")


async def test_ten_thousand_requests_of_one_client_wait_and_one_more_is_refused(tmp_path: Path) -> None:
    """Each of them gets its own reply. The limit is refused before anything is sent."""
    async with (
        open_cluster(tmp_path) as cluster,
        connect(cluster.address) as mq,
        connect(cluster.address) as replier,
        asyncio.timeout(240),
    ):
        await cluster.create_topic("t", queues=4)
        async with mq.producer("t") as producer, Background("ask") as background:

            async def ask_all() -> list[Message | BaseException]:
                bodies = [b"%d" % number for number in range(10_001)]
                asked = [producer.request(body, timeout_s=200) for body in bodies]
                return await asyncio.gather(*asked, return_exceptions=True)

            asking = background.spawn("ask", ask_all())
            async with mq.pop_consumer("other", "t") as consumer:
                while not await consumer.pop(wait_ms=1_000):
                    pass  # until the first requests are stored
            async with served(replier, echo, concurrency=256):
                *replies, refused = await asking
            assert isinstance(refused, Overloaded)
            assert [one.body for one in replies if isinstance(one, Message)] == [
                b"re: %d" % number for number in range(10_000)
            ]
        assert mq.late_replies == 0


async def test_a_refused_request_does_not_repeat_those_sent_at_the_same_time(tmp_path: Path) -> None:
    """A snode may store the other messages of a call, so that a retry of the whole call would store them again."""
    seen: list[bytes] = []

    async def handle(message: PoppedMessage) -> None:
        seen.append(message.body)
        await message.reply(message.body)

    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        await cluster.create_topic("t")
        async with served(mq, handle), mq.producer("t") as producer:
            too_late_ms = cluster.clock.now_ms() + 400 * 86_400_000
            messages = [Message(b"%d" % n, deliver_at_ms=too_late_ms if n == 10 else None) for n in range(20)]
            asked = [producer.request(one, timeout_s=50) for one in messages]
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(outcomes[10], Invalid)
        assert sorted(seen) == sorted(one.body for one in messages if one is not messages[10])


async def test_replies_reach_their_own_requester_only(tmp_path: Path) -> None:
    """Several clients with one client id ask at the same time; each gets the replies to its own requests."""
    async with open_cluster(tmp_path) as cluster, contextlib.AsyncExitStack() as stack, asyncio.timeout(60):
        await cluster.create_topic("t")
        clients = [await stack.enter_async_context(connect(cluster.address, client_id="same")) for _ in range(4)]
        await stack.enter_async_context(served(clients[0], echo))

        async def ask(mq: Client, name: int) -> None:
            async with mq.producer("t") as producer:
                bodies = [f"{name}-{number}".encode() for number in range(50)]
                replies = await asyncio.gather(*(producer.request(body, timeout_s=30) for body in bodies))
                assert [one.body for one in replies] == [b"re: " + body for body in bodies]

        await asyncio.gather(*(ask(mq, name) for name, mq in enumerate(clients)))
        assert [mq.late_replies for mq in clients] == [0] * 4


async def test_a_request_times_out_and_its_late_reply_is_counted_once(tmp_path: Path) -> None:
    """The error names topic, correlation id and time. The replier learns that its reply was late."""
    released, outcomes = asyncio.Event(), asyncio.Queue[bool]()

    async def handle(message: PoppedMessage) -> None:
        await released.wait()
        outcomes.put_nowait(await message.reply(b"1"))
        outcomes.put_nowait(await message.reply(b"2"))

    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        await cluster.create_topic("t")
        async with served(mq, handle), mq.producer("t") as producer:
            with pytest.raises(RequestTimeout, match=r"no reply to request [0-9a-f]{32} in topic t within 3 s") as got:
                await producer.request(b"?", timeout_s=3)
            assert (got.value.topic, got.value.timeout_s) == ("t", 3)
            assert mq.late_replies == 0
            released.set()
            assert [await outcomes.get(), await outcomes.get()] == [False, False]
            assert mq.late_replies == 1
            assert (await producer.request(b"?", timeout_s=30)).body == b"1", "the second reply is dropped"
            assert [await outcomes.get(), await outcomes.get()] == [True, True]
            assert mq.late_replies == 1


async def test_a_reply_finds_its_requester_after_a_restart_of_the_snode(tmp_path: Path) -> None:
    """The snode restarts between request and reply: the session of the requester is opened again."""
    got, released = asyncio.Event(), asyncio.Event()

    async def handle(message: PoppedMessage) -> None:
        got.set()
        await released.wait()
        assert await message.reply(b"after the restart")

    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        await cluster.create_topic("t")
        async with served(mq, handle), mq.producer("t") as producer, Background("ask") as background:
            asked = background.spawn("ask", producer.request(b"?", timeout_s=50))
            await got.wait()
            await cluster.close("snode-0")
            released.set()  # the first attempts to reply find no snode
            await cluster.open_snode("snode-0")
            assert (await asked).body == b"after the restart"


async def test_a_reply_follows_its_requester_to_another_snode(tmp_path: Path) -> None:
    """The requester's snode ends and does not return. Its session moves, and the replier's snode finds it there."""
    got, released = asyncio.Event(), asyncio.Event()

    async def handle(message: PoppedMessage) -> None:
        got.set()
        await released.wait()
        assert await message.reply(b"found")

    async with two_snodes(tmp_path) as (running, _), asyncio.timeout(60):
        cluster = running.cluster
        await cluster.create_topic("t")
        first, second = cluster.address_of("snode-0"), cluster.address_of("snode-1")
        async with (
            connect(first) as replier,
            connect([second, first]) as mq,
            served(replier, handle),
            mq.producer("t") as producer,
            Background("ask") as background,
        ):
            asked = background.spawn("ask", producer.request(b"1", timeout_s=50))
            await got.wait()
            released.set()
            assert (await asked).body == b"found", "a reply through another snode"
            got.clear()
            released.clear()
            asked = background.spawn("ask", producer.request(b"2", timeout_s=50))
            await got.wait()
            await cluster.close("snode-1")
            released.set()
            assert (await asked).body == b"found"


async def test_a_replier_uses_another_snode_when_its_own_goes_down(tmp_path: Path) -> None:
    """The snode of the replier ends between request and reply."""
    got, released = asyncio.Event(), asyncio.Event()

    async def handle(message: PoppedMessage) -> None:
        got.set()
        await released.wait()
        assert await message.reply(b"by the other snode")

    async with two_snodes(tmp_path) as (running, _), asyncio.timeout(60):
        cluster = running.cluster
        await cluster.create_topic("t")
        first, second = cluster.address_of("snode-0"), cluster.address_of("snode-1")
        async with (
            connect([second, first]) as replier,
            connect(first) as mq,
            served(replier, handle),
            mq.producer("t") as producer,
            Background("ask") as background,
        ):
            asked = background.spawn("ask", producer.request(b"?", timeout_s=50))
            await got.wait()
            await cluster.close("snode-1")
            released.set()
            assert (await asked).body == b"by the other snode"


async def test_a_request_of_a_replier_that_fails_is_answered_by_the_next_attempt(tmp_path: Path) -> None:
    """The handler raises, or its consumer ends without a reply: the message comes again, with the same request."""
    attempts: list[str] = []

    async def handle(message: PoppedMessage) -> None:
        assert message.request is not None
        attempts.append(message.request.correlation_id)
        if len(attempts) == 1:
            raise ValueError("not yet")
        await message.reply(b"at last")

    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        await cluster.create_topic("t")
        async with mq.producer("t") as producer, Background("ask") as background:
            asked = background.spawn("ask", producer.request(b"?", timeout_s=50))
            async with mq.pop_consumer("g", "t") as left:
                while not await left.pop(wait_ms=1_000):
                    pass  # this consumer leaves without a reply
            async with served(mq, handle):
                assert (await asked).body == b"at last"
        assert len(attempts) == 2
        assert len(set(attempts)) == 1


async def test_only_consumers_of_the_topic_may_reply(tmp_path: Path) -> None:
    """A user without the permission cannot reply, and cannot use the name of a topic that it may consume."""
    async with (
        guarded(tmp_path) as cluster,
        asyncio.timeout(60),
        as_user(cluster, "ann") as admin,
        as_user(cluster, "shop") as shop,
        admin.pop_consumer("g", "u") as consumer,
        admin.producer("u") as producer,
        Background("ask") as background,
    ):
        asked = background.spawn("ask", producer.request(b"?", timeout_s=30))
        while not (popped := await consumer.pop(wait_ms=1_000)):
            pass
        assert popped[0].request is not None
        request = reply_pb2.ReplyRequest(
            correlation_id=popped[0].request.correlation_id, reply_to=popped[0].request.reply_to
        )
        request.message.body = b"forged"
        for topic, text in (("u", "SUB"), ("t", "another topic")):
            request.topic = topic
            with pytest.raises(Forbidden, match=text):
                await shop._connection.call(ReplyServiceStub, "Reply", request)
        assert await popped[0].reply(b"by a consumer")
        assert (await asked).body == b"by a consumer"
        await popped[0].ack()


async def test_an_address_is_registered_with_its_secret_only(tmp_path: Path) -> None:
    """The same secret gives the same address in every session. A client that only reads the address cannot get it."""
    async with open_snode_cluster(tmp_path) as snode, asyncio.timeout(60):
        secret = bytes(range(32))
        async with SessionClient(snode, "a") as session:
            for given, expected in ((secret, reply_address("a", secret)), (secret[:31], "")):
                await session.say(register_requester=session_pb2.RegisterRequester(secret=given))
                answer = await session.event("requester_registered")
                assert answer.reply_to == expected
                assert answer.HasField("failure") is not bool(expected)
            assert reply_address("a", secret).endswith("@630dcd2966c4336691125448bbb25b4f")
            listed = (await snode.admin.ListClients(client_pb2.ListClientsRequest())).clients
            assert [(one.client_id, list(one.consumer_groups)) for one in listed] == [("a", [])]


async def test_a_request_is_refused_with_its_field(tmp_path: Path) -> None:
    """Wrong times, reserved properties and unknown topics are refused; nothing waits afterwards."""
    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        await cluster.create_topic("t")
        async with mq.producer("t") as producer:
            for timeout_s in (0.0, -1.0, 3_601.0):
                with pytest.raises(Invalid, match="timeout_s"):
                    await producer.request(b"?", timeout_s=timeout_s)
            for name in ("CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "DEDUP_ID"):
                with pytest.raises(Invalid, match=name):
                    await producer.request(Message(b"?", properties={name: "1"}), timeout_s=5)
            with pytest.raises(Invalid, match="body"):
                await producer.request(b"", timeout_s=5)
        assert not mq._requester._waiting


async def reply_often(snode: Snode, reply_to: str, count: int) -> list[BaseException]:
    """Send the largest replies to a requester that does not confirm them; return the errors."""
    request = reply_pb2.ReplyRequest(topic="t", correlation_id="0" * 32, reply_to=reply_to)
    request.message.body = bytes(4 << 20)
    stub = ReplyServiceStub(snode.cluster.channels.channel_to(snode.cluster.address))
    outcomes = await asyncio.gather(*(stub.Reply(request) for _ in range(count)), return_exceptions=True)
    return [one for one in outcomes if isinstance(one, BaseException)]


async def test_replies_whose_calls_have_ended_use_no_memory(tmp_path: Path) -> None:
    """The requester reads nothing. The memory of a reply is counted for its call only, so that both must end."""
    async with open_snode_cluster(tmp_path) as snode, asyncio.timeout(60):
        await snode.create_topic("t")
        async with SessionClient(snode, "a") as session:
            await session.say(register_requester=session_pb2.RegisterRequester(secret=bytes(32)))
            answer = await session.event("requester_registered")
            assert len(await reply_often(snode, answer.reply_to, 12)) == 12
            await session.say(hello=session_pb2.Hello(client_id="a", language="later"))
            await session.event("opened")
            delivered = [one for one in session.others if one.HasField("command")]
            assert len(delivered) <= 4, "those that gRPC had taken"


async def test_a_session_that_has_ended_registers_nothing(tmp_path: Path) -> None:
    """Another session has replaced it, but it has not read this yet. No later event would remove its registration."""
    async with open_snode_cluster(tmp_path) as snode, asyncio.timeout(60):
        await snode.create_topic("t")
        async with SessionClient(snode, "a") as replaced, SessionClient(snode, "a") as other:
            await replaced.consume("g", "t")
            await replaced.say(register_requester=session_pb2.RegisterRequester(secret=bytes(32)))
            address = (await replaced.event("requester_registered")).reply_to
            await reply_often(snode, address, 4)  # so that events of the server wait
            await other.consume("g", "t")
            await replaced.say(register_requester=session_pb2.RegisterRequester(secret=bytes(31) + b"1"))
            await replaced.say(register_producer=session_pb2.RegisterProducer(group="p"))
            with pytest.raises(EOFError):
                while True:
                    await replaced.event("opened")
            assert not [one for one in replaced.others if one.HasField("requester_registered")]
            listed = (await snode.admin.ListClients(client_pb2.ListClientsRequest())).clients
            assert [list(one.producer_groups) for one in listed] == [[]]
            [error] = await reply_often(snode, reply_address("a", bytes(31) + b"1"), 1)
            assert "requester a@" in str(error), "the address is not registered"


@dataclass
class Question:
    """The request of a program."""

    number: int


@dataclass
class Answer:
    """The reply of a program."""

    square: int


async def test_the_result_of_a_handler_is_the_reply(tmp_path: Path) -> None:
    """Handlers of a program, coroutine functions and plain ones; values are encoded by their types."""
    app = App("g")
    ask, ask_plain = app.producer("t", Question), app.producer("u", Question)

    @app.consumer("t")
    async def square(question: Question) -> Answer | None:
        return Answer(question.number**2) if question.number else None

    @app.consumer("u")
    def square_in_thread(question: Question) -> Answer:
        return Answer(question.number**2)

    async with open_cluster(tmp_path) as cluster, connect(cluster.address) as mq, asyncio.timeout(60):
        for topic in ("t", "u"):
            await cluster.create_topic(topic)
        async with app.running(mq):
            assert await ask.request(Question(7), Answer, timeout_s=30) == Answer(49)
            assert await ask_plain.request(Question(8), Answer, timeout_s=30) == Answer(64)
            await ask_plain.send(Question(9))  # no request: its result is ignored
            with pytest.raises(RequestTimeout):
                await ask.request(Question(0), Answer, timeout_s=0.5)
            with pytest.raises(Invalid, match="the reply is no dict"):
                await ask.request(Question(7), dict[str, str], timeout_s=30)


def blocking_round(cluster: InProcessCluster) -> bytes:
    """A request and its reply by the blocking client."""
    with (
        blocking.connect(cluster.address) as mq,
        mq.pop_consumer("g", "t") as consumer,
        mq.producer("t") as producer,
    ):

        def reply() -> None:
            while not (popped := consumer.pop(wait_ms=1_000)):
                pass
            assert consumer.reply(popped[0], b"blocking")
            consumer.ack(popped[0])

        replying = threading.Thread(target=reply)
        replying.start()
        body = producer.request(b"?", timeout_s=50).body
        replying.join()
        return body


async def test_the_blocking_client_requests_and_replies(tmp_path: Path) -> None:
    """`producer.request` and `consumer.reply`."""
    async with open_cluster(tmp_path) as cluster, asyncio.timeout(60):
        await cluster.create_topic("t")
        assert await asyncio.to_thread(blocking_round, cluster) == b"blocking"
