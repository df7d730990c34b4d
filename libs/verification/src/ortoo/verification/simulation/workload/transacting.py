"""Transactions: messages that are visible if and only if they were committed."""

from ortoo.client import Client, Message, OrtooError, TransactionalProducer, TransactionCheck, TransactionVerdict
from ortoo.verification.simulation.oracle.sent import SendOutcome, TrackedMessage, key_of
from ortoo.verification.simulation.oracle.stored import compare_stored
from ortoo.verification.simulation.workload.application import Application
from ortoo.verification.simulation.workload.pushing import push_member
from ortoo.verification.simulation.workload.scenario import Scenario

CHECK_AFTER_MS = 2_000


class TransactionScenario(Scenario):
    """A producer of transactions, some of which it leaves open, and a group that receives the committed ones."""

    name = "transacting"
    group = "push-committed"

    def build(self) -> None:
        """One producer, one that only answers checks, and two group members."""
        self._wanted: dict[str, TransactionVerdict] = {}

        async def produce(application: Application, client: Client) -> None:
            async with client.transactional_producer(self.name, "billing", self._answer) as producer:
                while True:
                    await self._transact(application, producer)
                    await application.pause_for(self.rate_per_s)

        async def answer(application: Application, client: Client) -> None:
            async with client.transactional_producer(self.name, "billing", self._answer):
                await application.stopping()

        async def consume(application: Application, client: Client) -> None:
            await push_member(application, client, self.group, self.name)

        self.groups = {self.group: self.name}
        self.senders = [self.application("p0", produce)]
        self.consumers = [self.application("answers", answer)]
        self.consumers += [self.application(f"c{n}", consume) for n in range(2)]

    async def prepare(self, client: Client) -> None:
        """A topic for transactions."""
        await client.admin.create_topic(self.name, queue_count=2, message_type="transaction")

    async def check(self, client: Client) -> None:
        """Compare the stored messages."""
        await compare_stored(client, self.oracle, self.name)

    async def _transact(self, application: Application, producer: TransactionalProducer) -> None:
        sent, message = application.next_message(self.name)
        chance = application.chance.uniform(0.0, 1.0)
        verdict = TransactionVerdict.COMMIT if chance < 0.6 else TransactionVerdict.ROLLBACK
        self._wanted[sent.key] = TransactionVerdict.UNKNOWN
        sent.hidden = True
        try:
            transaction = await producer.begin(Message(message.body), check_after_ms=CHECK_AFTER_MS)
        except OrtooError as error:
            self.oracle.sent.failed(sent, self.oracle.now_s(), error)
            self._decided(sent, TransactionVerdict.ROLLBACK)
            return
        self.oracle.sent.stored(sent, self.oracle.now_s(), None, -1)
        self._decided(sent, verdict)
        if application.chance.uniform(0.0, 1.0) < 0.25:
            return  # the enode will ask for its verdict
        await application.clock.sleep(application.chance.uniform(0.0, 0.2))
        try:
            await (transaction.commit() if verdict is TransactionVerdict.COMMIT else transaction.rollback())
        except OrtooError as error:
            if not error.retriable:
                self.oracle.violations.add("G7", f"the verdict on {sent.key} was refused: {error}")

    def _decided(self, sent: TrackedMessage, verdict: TransactionVerdict) -> None:
        self._wanted[sent.key] = verdict
        sent.hidden = verdict is not TransactionVerdict.COMMIT
        if sent.hidden and sent.outcome is SendOutcome.STORED:
            sent.optional = True

    async def _answer(self, check: TransactionCheck) -> TransactionVerdict:
        key = key_of(check.messages[0].body) or ""
        verdict = self._wanted[key]
        if verdict is TransactionVerdict.UNKNOWN and key.split("/")[1] != self.senders[0].incarnation:
            return TransactionVerdict.ROLLBACK  # the process that had to decide is dead
        return verdict
