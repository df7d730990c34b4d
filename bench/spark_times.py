"""Processor time of a Spark session, also of its Python processes that ended."""

import os
from dataclasses import dataclass, field

from bench import processes


@dataclass(slots=True)
class SparkTimes:
    """The processor time of the JVM that is a child of this process, and of all Python processes of its session.

    The JVM waits for the processes that it starts, so those that ended count among its children. Spark's daemon ignores
    the end of its workers, and the kernel then forgets their time. Therefore this object remembers the time of each
    worker. Only time after the last call of `read` before a worker's end is lost.
    """

    jvm: int = field(default_factory=lambda: _jvm())
    """The process id of the JVM."""
    _workers: dict[int, float] = field(default_factory=dict)

    def read(self) -> dict[str, float]:
        """Seconds so far: `jvm_s`, and `python_s` for driver, planners, workers and the commands that Hadoop starts."""
        while True:
            ended_s, children = processes.ended_children_s(self.jvm), processes.children(self.jvm)
            children_s = sum(map(processes.cpu_s, children))
            for worker in (each for child in children for each in processes.descendants(child)):
                self._workers[worker] = max(processes.cpu_s(worker), self._workers.get(worker, 0.0))
            if processes.ended_children_s(self.jvm) == ended_s:
                break  # otherwise a child has just ended, and is counted twice or not at all
        python_s = ended_s + children_s + sum(self._workers.values()) + processes.cpu_s(os.getpid())
        return {"jvm_s": processes.cpu_s(self.jvm), "python_s": python_s}


def _jvm() -> int:
    (jvm,) = (each for each in processes.descendants(os.getpid()) if processes.is_spark(each))
    return jvm
