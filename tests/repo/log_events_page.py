"""Writes the page of all log events from the modules that define them: `make docs`."""

import sys
from pathlib import Path
from types import ModuleType

import ortoo.client.log_events
import ortoo.common.logs.log_events
import ortoo.console.log_events
import ortoo.enode.log_events
import ortoo.namesrv.log_events
import ortoo.snode.log_events
import ortoo.spark.core.log_events
from ortoo.common.logs.log_event import LogEvent, RetryLogEvent

CATALOGS: dict[str, ModuleType] = {
    "All processes": ortoo.common.logs.log_events,
    "Name server": ortoo.namesrv.log_events,
    "Enode": ortoo.enode.log_events,
    "Snode": ortoo.snode.log_events,
    "Console": ortoo.console.log_events,
    "Client": ortoo.client.log_events,
    "Spark connector": ortoo.spark.core.log_events,
}
HEAD = (
    "# Log events\n\nFor operators: each kind of log line, its meaning and its remedy. Made from the code by "
    "`make docs`.\n\nA line of a log is an event name with key-value fields. The name of an event stays the same "
    "in all releases, so alerts and searches can rely on it. On a terminal a line is text; elsewhere it is JSON with "
    "the name in `event`, the level in `level` and the role in `component`. Applications receive the events of the "
    "client through the standard `logging` module, from the loggers `ortoo.*`. `reason` is the text of the error. The "
    "client writes the event of a failed attempt once, and then once a minute with the number of `omitted_lines`.\n"
)


def events_of(catalog: ModuleType) -> dict[str, LogEvent]:
    """Constant to event, in the order of the module."""
    events = {name: value.event if isinstance(value, RetryLogEvent) else value for name, value in vars(catalog).items()}
    return {name: event for name, event in events.items() if isinstance(event, LogEvent)}


def page() -> str:
    """The page as Markdown."""
    parts = [HEAD]
    for title, catalog in CATALOGS.items():
        parts.append(f"\n## {title}\n\n| event | level | meaning | remedy |\n|---|---|---|---|\n")
        parts += [
            f"| `{event.name}` | {event.level} | {event.meaning} | {event.action} |\n"
            for event in sorted(events_of(catalog).values(), key=lambda event: event.name)
        ]
    return "".join(parts)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
