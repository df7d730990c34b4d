"""The cost of tracing: processor time a message with tracing off, and on with one message in a hundred sampled."""

import argparse
import contextlib
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.baselines.span_sink import sink
from bench.processes import Cluster, cluster, running_s
from bench.report import Figures, main
from bench.traffic import Received, consuming, make_topic
from bench.workload import Bodies
from ortoo.client import Message, Producer, connect

METHOD = (
    "three clusters at once, loaded in turn with the same messages, of which 1 % carry a sampled context, in an order"
    " that rotates. One has a snode that does not check whether tracing is on, one has tracing off, one sends spans "
    "to an OTLP receiver. One producer and one push consumer; processor time of producer, consumer, snode and enode a"
    " message. A round is short and its order rotates, so that disturbances of the machine affect neighbours alike. "
    "The cost is the median over the rounds of the ratio to the first cluster's mean of this round and the next. It "
    "has the standard error of that median and the quartiles"
)
CHUNK_MESSAGES = 8_000
BYPASSED, OFF, ON = "bypassed", "off", "on, 1 % sampled"


@dataclass(slots=True)
class Lane:
    """One cluster with its producer and consumer."""

    name: str
    roles: Cluster
    producer: Producer
    received: Received
    bodies: Bodies
    sent: int = 0

    async def run(self, messages: int) -> float:
        """Send, and wait until all has arrived; processor microseconds a message."""
        before = self._used_s()
        for _ in range(messages // CHUNK_MESSAGES):
            await self.producer.send_many(self._chunk())
            self.sent += CHUNK_MESSAGES
        await self.producer.flush()
        await self.received.reach(self.sent)
        used_s = self._used_s() - before
        return used_s / (messages // CHUNK_MESSAGES * CHUNK_MESSAGES) * 1e6

    def _used_s(self) -> float:
        return sum(map(running_s, self.roles.process_ids().values()))

    def _chunk(self) -> list[Message]:
        messages = [Message(body) for body in self.bodies.take(CHUNK_MESSAGES)]
        for at in range(0, CHUNK_MESSAGES, 100):
            context = f"00-{self.sent + at + 1:032x}-{at + 1:016x}-01"
            messages[at] = Message(messages[at].body, trace_context=context)
        return messages


async def measure(options: argparse.Namespace) -> Figures:
    """Measure all three clusters in one run."""
    messages = options.messages // CHUNK_MESSAGES * CHUNK_MESSAGES
    used: dict[str, list[float]] = {BYPASSED: [], OFF: [], ON: []}
    async with contextlib.AsyncExitStack() as parts:
        endpoint = {"TRACE_ENDPOINT": f"http://{await parts.enter_async_context(sink())}"}
        lanes = []
        for name in used:
            traced = endpoint if name == ON else {}
            module = "bench.untraced" if name == BYPASSED else ""
            roles = await parts.enter_async_context(cluster(None, snode_settings=traced, snode_module=module, **traced))
            mq = await parts.enter_async_context(connect(roles.address))
            await make_topic(roles.address, "bench", 8)
            received = await parts.enter_async_context(consuming(roles.address, "bench", "bench", verify=False))
            producer = await parts.enter_async_context(mq.producer("bench"))
            lanes.append(Lane(name, roles, producer, received, Bodies(256)))
        for lane in lanes:
            await lane.run(messages)  # not counted
        for number in range(options.rounds):
            for lane in lanes[number % 3 :] + lanes[: number % 3]:
                used[lane.name].append(await lane.run(messages))
    found = {name: _costs(used[name], used[BYPASSED]) for name in (OFF, ON)}
    return {
        "rounds": options.rounds,
        "messages_per_round": messages,
        "cpu_us_per_message": {name: round(statistics.median(values), 3) for name, values in used.items()},
        "cost_percent": {name: round(statistics.median(costs), 2) for name, costs in found.items()},
        "standard_error_percent": {name: round(_standard_error(costs), 2) for name, costs in found.items()},
        "quartiles_percent": {
            name: [round(edge, 1) for edge in statistics.quantiles(costs, n=4)[::2]] for name, costs in found.items()
        },
    }


def _costs(ours: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """Percent above the baseline, round by round; the mean of two neighbouring baseline rounds smooths disturbances."""
    beside = [(one + after) / 2 for one, after in zip(baseline, [*baseline[1:], baseline[-1]], strict=True)]
    return [100 * (one / other - 1) for one, other in zip(ours, beside, strict=True)]


def _standard_error(costs: Sequence[float]) -> float:
    """Standard error of the median, from the interquartile range: single rounds do not disturb it."""
    low, _, high = statistics.quantiles(costs, n=4)
    return float(1.2533 * (high - low) / 1.349 / len(costs) ** 0.5)


if __name__ == "__main__":
    main("tracing", METHOD, measure, messages=64_000, rounds=60)
