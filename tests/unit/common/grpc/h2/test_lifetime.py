"""The life of a connection: pings, idleness, age, set-up and floods, by given times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.grpc.h2.limits import WireLimits
from ortoo.common.grpc.h2.shared.lifetime import EMPTY_RESETS_TOGETHER_MAX, LOOK_S_MIN, Lifetime, Step

LIMITS = WireLimits(keepalive_s=30, keepalive_timeout_s=10, idle_max_s=300, ping_interval_s=5, pings_max=3)


def busy(limits: WireLimits = LIMITS, spread: float = 0.0) -> Lifetime:
    """A connection with an open call, at time 0."""
    made = Lifetime(limits, 0.0, spread)
    made.on_calls(1, 0.0)
    return made


def test_a_silent_peer_is_pinged_and_then_broken() -> None:
    """Any bytes after the ping keep the connection."""
    lifetime = busy()
    assert lifetime.next_step(29) is Step.NOTHING
    assert lifetime.next_step(30) is Step.PING
    assert lifetime.next_step(39) is Step.NOTHING
    lifetime.heard_s = 39
    assert lifetime.next_step(41) is Step.NOTHING
    assert lifetime.next_step(69) is Step.PING
    assert lifetime.next_step(79) is Step.BREAK


@given(
    st.lists(st.tuples(st.floats(0.1, 400), st.sampled_from(["heard", "call", "over", "quiet"])), max_size=30),
    st.sampled_from([0.0, 100.0, 1800.0]),
)
def test_no_action_is_late_when_the_connection_is_looked_at_as_told(
    steps: list[tuple[float, str]], age_s: float
) -> None:
    """A busy connection has a timer in half a minute instead of every five seconds."""
    limits = WireLimits(keepalive_s=30, keepalive_timeout_s=10, idle_max_s=300, age_max_s=age_s)
    told, looked_at = Lifetime(limits, 0.0, 0.0), Lifetime(limits, 0.0, 0.0)
    now_s, look_s = 0.0, told.next_look_s(0.0)
    for elapsed_s, event in steps:
        until_s = now_s + elapsed_s
        while look_s <= until_s:
            assert looked_at.next_step(look_s - 2 * LOOK_S_MIN) is Step.NOTHING
            step = told.next_step(look_s)
            assert step is looked_at.next_step(look_s)
            if step is Step.BREAK:
                return
            look_s = told.next_look_s(look_s)
        now_s = until_s
        for one in (told, looked_at):
            if event == "heard":
                one.heard_s = now_s
            elif event == "call":
                one.on_calls(1, now_s)
            elif event == "over":
                one.on_calls(0, now_s)


def test_a_connection_without_calls_is_retired_once() -> None:
    """A call, however short, begins the time again."""
    lifetime = Lifetime(LIMITS, 0.0, 0.0)
    lifetime.heard_s = 299
    lifetime.on_calls(1, 299)
    assert lifetime.next_step(310) is Step.NOTHING
    lifetime.on_calls(0, 320)
    lifetime.heard_s = 610
    assert lifetime.next_step(619) is Step.NOTHING
    assert lifetime.next_step(620) is Step.RETIRE
    assert lifetime.next_step(621) is Step.NOTHING


@pytest.mark.parametrize(("spread", "age_s"), [(-1.0, 90), (0.0, 100), (1.0, 110)])
def test_ages_differ_by_a_tenth(spread: float, age_s: float) -> None:
    """Otherwise all connections of a restarted snode would end together."""
    lifetime = busy(WireLimits(age_max_s=100), spread)
    assert lifetime.next_step(age_s - 1) is Step.NOTHING
    assert lifetime.next_step(age_s + 0.01) is Step.RETIRE


def test_set_up_has_two_times() -> None:
    """The peer's settings, and its acknowledgement of ours."""
    lifetime = Lifetime(WireLimits(set_up_max_s=10, settings_max_s=20), 0.0, 0.0)
    assert not lifetime.is_set_up_late(9)
    assert lifetime.is_set_up_late(10)
    lifetime.on_settings()
    assert not lifetime.is_set_up_late(19)
    assert lifetime.is_set_up_late(20)
    lifetime.on_settings_acknowledged()
    assert not lifetime.is_set_up_late(21)


def test_pings_without_calls_are_limited() -> None:
    """Slow pings are free, and each request resets the count."""
    lifetime = busy()
    assert not any(lifetime.on_ping(at) for at in range(0, 100, 5))
    assert [lifetime.on_ping(at) for at in (96, 97, 98, 99)] == [False, False, False, True]
    lifetime.on_data()
    assert not lifetime.on_ping(99.5)


def test_resets_of_streams_without_requests_are_limited() -> None:
    """A burst, and a rate."""
    lifetime = busy()
    burst = int(EMPTY_RESETS_TOGETHER_MAX)
    assert not any(lifetime.on_empty_reset(0.0) for _ in range(burst))
    assert lifetime.on_empty_reset(0.0)
    slow = busy()
    assert not any(slow.on_empty_reset(at / 100) for at in range(10 * burst))


def test_a_connection_with_heartbeats_is_rarely_looked_at() -> None:
    """Thousands of idle clients would otherwise cost a timer each every few seconds."""
    lifetime, now_s, looks = busy(), 0.0, 0
    while now_s < 300:
        now_s, looks = lifetime.next_look_s(now_s), looks + 1
        lifetime.heard_s = 5 + 10 * ((now_s - 5) // 10)
        assert lifetime.next_step(now_s) is Step.NOTHING
    assert looks <= 16
