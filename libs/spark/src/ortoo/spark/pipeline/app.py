"""The command `ortoo-pipeline JOB --config FILE [--once] [--reset ID]`.

Exit codes: 0 done, 1 failed, 2 wrong settings or usage, 3 the lake differs from what was read.
"""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ortoo.common.errors import Invalid, OrtooError
from ortoo.common.logs.logger import configure
from ortoo.common.process.clock import SystemClock
from ortoo.common.process.settings import load
from ortoo.spark.pipeline.runtime.progress import Say
from ortoo.spark.pipeline.runtime.settings import PipelineSettings
from ortoo.spark.pipeline.runtime.settings import parse_pairs as named_values

DONE, FAILED, USAGE, DIFFERENT = 0, 1, 2, 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one job; returns the exit code."""
    parser = argparse.ArgumentParser(prog="ortoo-pipeline", description="Jobs between Ortoo's topics and a lake.")
    parser.add_argument("job", choices=sorted(_JOBS), metavar="JOB", help=", ".join(_JOBS))
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="settings in TOML")
    parser.add_argument("--once", action="store_true", help="process what is stored now, then exit")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="overrides the file, such as replay.topic=t"
    )
    parser.add_argument("--reset", default="", metavar="ID", help="accounts: remove the account of this archive")
    given = parser.parse_args(arguments)
    if given.reset and given.job != "accounts":
        parser.error("--reset has no effect here, only with accounts; remove it")
    configure(level="warning")
    clock = SystemClock()
    began_s = clock.monotonic_s()

    def say(text: str) -> None:
        print(f"[{clock.monotonic_s() - began_s:7.1f} s] {text}", flush=True)

    signal.signal(signal.SIGTERM, _raise_interrupt)
    try:
        settings = _settings(given.config, given.set)
        return _run(given.job, settings, say, given.once, given.reset)
    except Invalid as error:
        print(f"ortoo-pipeline: {error}", file=sys.stderr)
        return USAGE
    except OrtooError as error:
        print(f"ortoo-pipeline: {given.job} failed: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        say("stopped; the next run continues from here")
        return DONE
    except Exception as error:
        print(f"ortoo-pipeline: {given.job} failed: {_error_line(error)}", file=sys.stderr)
        return FAILED


def _settings(file: Path, pairs: Sequence[str]) -> PipelineSettings:
    overrides: dict[str, Any] = dict(named_values(pairs, "--set"))
    return load(
        PipelineSettings, environ_prefix="ORTOO_PIPELINE_", environ=os.environ, file=file, overrides=overrides
    ).settings


def _error_line(error: Exception) -> str:
    """The line of Spark's error text that has an error of Ortoo, or else the first line."""
    lines = str(error).splitlines()
    ours = [line for line in lines if line.startswith("ortoo.common.errors.")]
    return ours[-1].partition(": ")[2] if ours else (lines[0] if lines else type(error).__name__)


def _raise_interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _run(name: str, settings: PipelineSettings, say: Say, once: bool, reset: str) -> int:
    """Run a job. The job's module and Spark are imported only here."""
    job = getattr(importlib.import_module(f"ortoo.spark.pipeline.jobs.{name}"), name)
    if name == "lag":
        from ortoo.spark.core.link import link_to

        job(settings, say)
        while not once:
            link_to(settings.cluster).sleep(settings.lag.interval_s)
            job(settings, say)
    elif name == "compact":
        job(settings, say)
    elif name == "accounts":
        job(settings, say, reset=reset)
    else:
        from ortoo.spark.pipeline.runtime.session import session

        settings.open_lake()
        with session(settings.spark) as spark:
            if name != "archive":
                job(spark, settings, say)
            elif (outcome := job(spark, settings, say, once=once)) is not None and not outcome.is_complete:
                return DIFFERENT
    return DONE


_JOBS = ("archive", "compact", "replay", "trace", "lag", "accounts")
