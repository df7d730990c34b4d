"""Limits on requests of clients: requests or bytes a second, for a method, a topic, or in total."""

import enum
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ortoo.common.errors import Invalid, Overloaded
from ortoo.common.process.clock import Clock
from ortoo.common.telemetry.metrics import Metrics
from ortoo.snode.policy.interceptors import InterceptedCall

EXEMPT_METHODS = ("Heartbeat", "Connect", "Push", "DescribeFlowControl", "UpdateFlowControl")
"""Methods without limits, so that a throttled client stays alive, and an operator can remove limits."""
DELAYED_METHODS = ("ProducerService/Produce",)
"""Streams whose requests are delayed instead of refused."""
RECHECK_INTERVAL_S = 1.0
"""Interval in which a delayed request checks its limit again, because the limit may be removed."""
RULES_MAX = 1_000


class FlowUnit(enum.IntEnum):
    """The unit of a limit; the values are those of the protobuf enum."""

    REQUESTS = 1
    BYTES = 2


@dataclass(frozen=True, slots=True)
class FlowRule:
    """One limit on calls: a number of requests or bytes a second."""

    unit: FlowUnit
    per_second: float
    method: str = ""
    """Empty = all methods together."""
    topic: str = ""
    """Empty = all topics together."""

    def check(self) -> None:
        """Refuse an invalid rule. Errors: Invalid."""
        if not 0 < self.per_second < 1e15:
            raise Invalid(f"{self.per_second} a second; give more than 0", field="rules.per_second")
        if self.method and self.method.count("/") != 1:
            raise Invalid(f"{self.method!r}; give it as ProducerService/Publish", field="rules.method")


class TokenBucket:
    """A token bucket with a rate per second and a burst of one second."""

    def __init__(self, per_second: float, now_s: float) -> None:
        """Start full."""
        self._per_second = self._left = per_second
        self._at_s = now_s

    def wait_s(self, amount: float, now_s: float) -> float:
        """The seconds to wait before `amount` may be taken; 0 = now. A full bucket allows any `amount`."""
        self._left = min(self._per_second, self._left + (now_s - self._at_s) * self._per_second)
        self._at_s = now_s
        missing = min(amount, self._per_second) - self._left
        return max(0.0, missing / self._per_second)

    def take(self, amount: float) -> None:
        """Take `amount` from the bucket, which may become negative."""
        self._left -= amount


class FlowControl:
    """Refuses or delays calls beyond the limits. An admitted call counts even if it then fails."""

    def __init__(self, clock: Clock) -> None:
        """Start without limits."""
        self.rules: tuple[FlowRule, ...] = ()
        self.refused_counts: list[int] = []
        """Number of calls that each rule has refused or delayed."""
        self._buckets: list[TokenBucket] = []
        self._clock = clock

    def register(self, metrics: Metrics) -> None:
        """Register the metrics of flow control."""
        metrics.counter(
            "ortoo_flow_control_refused_total",
            "Calls refused or delayed by a limit.",
            lambda: {
                (rule.unit.name.lower(), rule.method, rule.topic): refused
                for rule, refused in zip(self.rules, self.refused_counts, strict=True)
            },
            labels=("unit", "method", "topic"),
        )

    def replace(self, rules: Sequence[FlowRule]) -> None:
        """Replace the limits by `rules`. Errors: Invalid. After an error, the previous limits stay."""
        if len(rules) > RULES_MAX:
            raise Invalid(f"{len(rules)} rules; give at most {RULES_MAX}", field="rules")
        for rule in rules:
            rule.check()
        now_s = self._clock.monotonic_s()
        self._buckets = [TokenBucket(rule.per_second, now_s) for rule in rules]
        self.refused_counts = [0] * len(rules)
        self.rules = tuple(rules)

    async def admit(self, call: InterceptedCall) -> None:
        """Count a call against the limits; a request within a stream is delayed if it exceeds them.

        Errors: Overloaded with the time to wait.
        """
        if call.method.partition("/")[2] in EXEMPT_METHODS:
            return
        counted: tuple[FlowRule, ...] | None = None
        while (found := self._longest_wait(call)) is not None:
            wait_s, number = found
            if counted is not self.rules:
                counted = self.rules
                self.refused_counts[number] += 1
            if call.method not in DELAYED_METHODS:
                raise Overloaded(
                    f"{call.method} exceeds {_describe(self.rules[number])}; slow down",
                    retry_after_ms=max(1, int(wait_s * 1000)),
                )
            await self._clock.sleep(min(wait_s, RECHECK_INTERVAL_S))
        for number, amount in self._amounts(call):
            self._buckets[number].take(amount)

    def _longest_wait(self, call: InterceptedCall) -> tuple[float, int] | None:
        now_s = self._clock.monotonic_s()
        waits = [(self._buckets[number].wait_s(amount, now_s), number) for number, amount in self._amounts(call)]
        longest = max(waits, default=(0.0, 0))
        return longest if longest[0] > 0 else None

    def _amounts(self, call: InterceptedCall) -> list[tuple[int, float]]:
        """The number of each rule that counts this call, and the amount that it counts."""
        found: list[tuple[int, float]] = []
        if call.request is None and call.method in DELAYED_METHODS:
            return found  # its requests are counted one by one
        topic, size_bytes = call.topic, -1
        for number, rule in enumerate(self.rules):
            if rule.method not in ("", call.method) or rule.topic not in ("", topic):
                continue
            if rule.unit is FlowUnit.BYTES and size_bytes < 0:
                size_bytes = call.size_bytes
            found.append((number, 1.0 if rule.unit is FlowUnit.REQUESTS else float(size_bytes)))
        return found


def _describe(rule: FlowRule) -> str:
    place = " of ".join(filter(None, (rule.method, f"topic {rule.topic}" if rule.topic else "")))
    return f"{rule.per_second:g} {rule.unit.name.lower()} a second{f' for {place}' if place else ''}"


_KEYS = frozenset({"unit", "per_second", "method", "topic"})


def parse_flow_rules(text: str) -> list[FlowRule]:
    """The limits in a file's text; no text means no limits. Errors: Invalid, naming the rule.

    [[rule]]
    unit = "requests"                       # or "bytes"
    per_second = 500
    method = "ProducerService/Publish"      # optional, all methods together
    topic = "orders"                        # optional, all topics together
    """
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"this is not TOML: {error}", field="rule") from None
    if unknown := sorted(data.keys() - {"rule"}):
        raise Invalid(f"{unknown[0]!r} is unknown; give [[rule]] tables", field=unknown[0])
    entries = data.get("rule", [])
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise Invalid("give [[rule]] tables", field="rule")
    rules = []
    for number, one in enumerate(entries):
        field = f"rule[{number}]"
        if unknown := sorted(one.keys() - _KEYS):
            raise Invalid(f"{unknown[0]!r} is unknown; give {', '.join(sorted(_KEYS))}", field=field)
        try:
            unit = FlowUnit[str(one.get("unit", "requests")).upper()]
            rule = FlowRule(unit, float(one["per_second"]), str(one.get("method", "")), str(one.get("topic", "")))
        except (KeyError, TypeError, ValueError):
            raise Invalid("give unit = requests or bytes, and per_second as a number", field=field) from None
        rule.check()
        rules.append(rule)
    return rules
