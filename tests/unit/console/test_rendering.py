"""Texts, numbers and times of pages, and inputs of addresses and forms."""

import pytest

from ortoo.client import LagByState
from ortoo.common.errors import Invalid
from ortoo.console.pages.groups.group import retention_left_ms
from ortoo.console.pages.groups.reset import read_offsets
from ortoo.console.pages.messages.find import time_ms
from ortoo.console.pages.sign_in import local_path
from ortoo.console.web.forms import whole_number
from ortoo.console.web.names import name_before
from ortoo.console.web.rendering import Rendering, show_body, show_bytes, show_duration, show_start, show_time


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        *((0, "0 ms"), (-5, "0 ms"), (999, "999 ms"), (59_000, "59 s"), (60_000, "1 min"), (3_725_000, "1 h 2 min")),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_durations_have_two_units(duration_ms: int, text: str) -> None:
    """The largest unit and the next one."""
    assert show_duration(duration_ms) == text


def test_numbers_of_bytes_have_units() -> None:
    """Powers of 1,024."""
    assert [show_bytes(one) for one in (0, 1023, 1024, 4 << 20)] == ["0 B", "1023 B", "1.0 KiB", "4.0 MiB"]


def test_times_name_their_zone_and_never_fail() -> None:
    """A time that no calendar has is shown as a number."""
    assert "2023-11-14 22:13:20.123 UTC" in show_time(1_700_000_000_123)
    assert show_time(0) == "–"
    assert "9223372036854775807 ms" in show_time((1 << 63) - 1)


def test_bodies_hide_nothing() -> None:
    """Bytes that are no text, controls and changes of direction are visible escapes."""
    assert show_body(b"a\xff\n\x1b[0m\xe2\x80\xae") == "a\\xff\n\\x1b[0m\\u202e"
    assert show_start(b"two\nlines") == "two\\x0alines"


def test_templates_escape() -> None:
    """Also attributes and names in links."""
    rendering = Rendering()
    [queue] = list(read_offsets("t", "e 0 1"))
    text = rendering.render("message_rows.html", {"messages": [], "bodies_hidden": False})
    assert text.strip() == ""
    macro = rendering._environment.get_template("parts.html").make_module({"root": ""})
    assert '"><script>' not in str(macro.topic_link('"><script>'))  # type: ignore[attr-defined]
    assert '"><script>' not in str(macro.message_link('"><script>', queue, 0, '"><script>'))  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\nb"])
def test_a_sign_in_leads_to_pages_of_the_console_alone(text: str) -> None:
    """An address of another site is replaced."""
    assert local_path(text) == "/"


def test_a_sign_in_leads_back_to_its_page() -> None:
    """A path of the console is kept."""
    assert local_path("/topics/a%7Cb") == "/topics/a%7Cb"


def test_a_list_begins_at_a_name() -> None:
    """The text sorts before the name, and after the names before it."""
    for name, earlier in (("orders", "ordeq"), ("b", "a"), ("a-1", "a-0"), ("t|x", "t{"[:1] + "a")):
        assert earlier < name
        assert earlier <= name_before(name) < name
    assert name_before("") == ""


def test_the_time_until_retention_follows_from_the_used_share() -> None:
    """A quarter used in an hour leaves three hours."""
    assert retention_left_ms(LagByState(oldest_at_ms=1, retention_used=0.25), 3_600_000) == 3 * 3_600_000
    assert retention_left_ms(LagByState(oldest_at_ms=1, retention_used=2.0), 3_600_000) == 0
    assert retention_left_ms(LagByState(), 0) is None


def test_inputs_are_refused_with_their_field() -> None:
    """Numbers, times and the offsets of a preview."""
    for call, field in (
        (lambda: whole_number("²", "count"), "count"),
        (lambda: whole_number("11", "count", maximum=10), "count"),
        (lambda: time_ms("noon", "begin"), "begin"),
        (lambda: read_offsets("t", "e 0"), "offsets"),
        (lambda: read_offsets("t", "e 0 -1"), "offsets"),
        (lambda: read_offsets("t", ""), "offsets"),
    ):
        with pytest.raises(Invalid) as caught:
            call()
        assert caught.value.field == field
    assert time_ms("2026-01-31T12:00:00+01:00", "begin") == time_ms("2026-01-31T11:00", "begin")
