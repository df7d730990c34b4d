"""A sequence of random queries on one frame; each is compared with the same query on a plain DataFrame.

One seed repeats a sequence. The queries are filters, unions, self-joins, temporary views, cached frames and earlier
frames that are queried again. Spark's own push-down setting changes between them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from ortoo.common.process.randomness import Randomness

COLUMNS: Final = "enode,queue_id,offset,tag,body,stored_at"
"""The columns of a frame that these queries name."""
SETTING: Final = "spark.sql.python.filterPushdown.enabled"
_KEPT_MAX = 4
_NUMBER = "cast(cast(body as string) as int)"

Query = Callable[[Any], Any]
"""Makes one frame out of another."""


class RandomQueries:
    """The frame under test, a plain DataFrame of the same rows, and the frames derived from both."""

    def __init__(self, frame: Any, plain: Any, seed: int, push_down: Sequence[str] = ("true", "false")) -> None:
        """`frame` and `plain` are of one session, and have the same rows and the columns `COLUMNS`."""
        self._spark = frame.sparkSession
        self._both = (frame, plain)
        self._chance, self._push_down = Randomness(seed), push_down
        self._earlier: list[tuple[str, Sequence[Any]]] = []
        self._cached: list[Sequence[Any]] = []
        self._kinds = (self._filter, self._union, self._join, self._view, self._cache, self._again, self._whole)

    def first_difference(self, count: int) -> str:
        """Run `count` queries. The first one whose rows differ, and the number of rows; empty if there is none."""
        try:
            for number in range(count):
                self._spark.conf.set(SETTING, self._one(*self._push_down))
                text, pair = self._one(*self._kinds)()
                # A DataFrame that is collected twice is planned once; one that is made of it is planned too.
                found, expected = (sorted(map(repr, each.select("*").collect())) for each in pair)
                if found != expected:
                    return f"query {number}, {text}: {len(found)} rows instead of {len(expected)}, or other rows"
        finally:
            self._spark.conf.unset(SETTING)
            for each in (frame for pair in self._cached for frame in pair):
                each.unpersist(blocking=True)
        return ""

    def _made(self, text: str, query: Query) -> tuple[str, Sequence[Any]]:
        """A query on both frames; some are kept to be queried again."""
        made = text, [query(each) for each in self._both]
        self._earlier = [*self._earlier[-_KEPT_MAX:], made]
        return made

    def _whole(self) -> tuple[str, Sequence[Any]]:
        return "the whole frame", self._both

    def _filter(self) -> tuple[str, Sequence[Any]]:
        condition, narrower = self._condition(), self._one("true", self._condition())
        return self._made(f"where {condition} where {narrower}", lambda frame: frame.where(condition).where(narrower))

    def _union(self) -> tuple[str, Sequence[Any]]:
        one, other, how = (
            self._condition(),
            self._one("true", self._condition()),
            self._one("union", "union", "intersectAll"),
        )
        return self._made(
            f"where {one} {how} where {other}", lambda frame: getattr(frame.where(one), how)(frame.where(other))
        )

    def _join(self) -> tuple[str, Sequence[Any]]:
        one, other = self._condition(), self._one("true", self._condition())
        how, distance = self._one("inner", "left", "left_semi", "left_anti"), self._chance.below(3)
        names = [f"l.{name} <=> r.{name}" for name in ("enode", "queue_id")]
        on = " and ".join([*names, f"l.offset + {distance} = r.offset"])

        def joined(frame: Any) -> Any:
            from pyspark.sql import functions as sf

            return frame.where(one).alias("l").join(frame.where(other).alias("r"), sf.expr(on), how)

        return self._made(f"where {one} {how} join where {other} on {on}", joined)

    def _view(self) -> tuple[str, Sequence[Any]]:
        one, other = self._condition(), self._condition()
        words = self._one(
            f"select * from {{view}} where {one}",
            f"select tag, count(*) as n, max(offset) as top from {{view}} where {one} group by tag",
            f"select count(*) as n from {{view}} where offset > (select min(offset) from {{view}} where {one})",
            f"select * from {{view}} where {one} and queue_id in (select queue_id from {{view}} where {other})",
            f"with some as (select * from {{view}} where {one}) select * from some union all select * from {{view}}",
        )
        for name, frame in zip(("frame", "plain"), self._both, strict=True):
            frame.createOrReplaceTempView(f"{name}_rows")
        return words, [self._spark.sql(words.format(view=f"{name}_rows")) for name in ("frame", "plain")]

    def _cache(self) -> tuple[str, Sequence[Any]]:
        if len(self._cached) == _KEPT_MAX:
            for each in self._cached.pop(0):
                each.unpersist(blocking=True)
        text, pair = self._filter()
        self._cached.append([each.cache() for each in pair])
        return f"cached, {text}", pair

    def _again(self) -> tuple[str, Sequence[Any]]:
        if not self._earlier:
            return self._whole()
        text, pair = self._one(*self._earlier)
        return f"again, {text}", pair

    def _condition(self, depth: int = 2) -> str:
        if depth and self._chance.below(2):
            word = self._one("and", "and", "or")
            return f"({self._condition(depth - 1)} {word} {self._condition(depth - 1)})"
        low = self._chance.below(12)
        chosen: str = self._one(
            f"tag = '{self._tag()}'",
            f"tag = '{self._tag()}'",
            f"tag in ('{self._tag()}', '{self._tag()}')",
            f"tag <=> '{self._tag()}'",
            f"not tag = '{self._tag()}'",
            f"tag like '%{self._tag()}'",
            "tag is null",
            "tag is not null",
            f"offset < {low}",
            f"offset between {low} and {low + self._chance.below(12)}",
            f"offset >= {low}",
            f"queue_id = {self._chance.below(4)}",
            f"enode in ('enode-{self._chance.below(2)}', 'none')",
            f"stored_at < timestamp'{self._one('2020', '9998')}-01-01 00:00:00'",
            f"{_NUMBER} % 3 = {self._chance.below(3)}",
            f"{_NUMBER} < {low * 10}",
        )
        return chosen

    def _tag(self) -> str:
        return ("a", "b", "c", "none has it")[self._chance.below(4)]

    def _one(self, *choices: Any) -> Any:
        return choices[self._chance.below(len(choices))]
