"""A snode's copy of lite topics: whatever overtakes what, it never keeps a state that the directory has left."""

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from ortoo.common.directory.topic import Permission, Placement
from ortoo.snode.cluster.lite_cache import LiteTopicCache
from ortoo.snode.cluster.routes import Topic

PARENT, PLACED = "p", (Placement("e", 1, 1),)
NAMES = [f"%LMQ%|{PARENT}|{letter}" for letter in "abc"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["create", "change", "delete", "restore", "watch", "ask", "answer", "list", "page", "reconnect"]
        ),
        st.sampled_from(NAMES),
        st.integers(0, 3),
    ),
    max_size=60,
)


@dataclass
class Cluster:
    """The directory, a name server that may lag behind it, a watch whose changes are on their way, and a snode."""

    history: list[dict[str, Topic]] = field(default_factory=lambda: [{}])
    """The topics at each version."""
    watched: int = 0
    cache: LiteTopicCache = field(default_factory=LiteTopicCache)
    answers: deque[tuple[list[str] | None, int, int]] = field(default_factory=deque)
    """The requested names (None = the parent's list), the version of the answer, and the watched version then."""

    @property
    def now(self) -> dict[str, Topic]:
        """The topics in the directory."""
        return self.history[-1]

    def step(self, how: str, name: str, lag: int) -> None:
        """One event; `lag` is the number of versions by which the answering name server is behind."""
        version = len(self.history)
        answered = max(0, version - 1 - lag)
        match how:
            case "create" | "change" if (how == "change") == (name in self.now):
                topic_id = self.now[name].topic_id if name in self.now else version
                topic = Topic(name, topic_id, version, Permission.READ_WRITE, PLACED, parent=PARENT)
                self.history.append({**self.now, name: topic})
            case "delete" if name in self.now:
                self.history.append({key: one for key, one in self.now.items() if key != name})
            case "restore":  # of a backup; the version is raised, and topics have their former versions
                self.history.append(self.history[answered])
            case "watch":
                self.watch()
            case "ask":
                if asked := self.cache.enter([name]):
                    self.answers.append((asked, answered, self.watched))
            case "list" if not self.cache.is_complete(PARENT):
                self.cache.enter_parent(PARENT)
                self.answers.append((None, answered, self.watched))
            case "answer" | "page" if self.answers:
                self.answer()
            case "reconnect":  # the changes on their way are lost, and the watch resumes at the current version
                self.watched = version - 1
                self.cache.expire(self.watched)
            case _:
                pass

    def watch(self) -> None:
        """Apply all changes that are on their way, merged."""
        before, after = self.history[self.watched], self.now
        seen = {name for topics in self.history[self.watched :] for name in topics}
        self.watched = len(self.history) - 1
        changed = [one for name, one in after.items() if before.get(name) != one]
        self.cache.apply(changed, seen - after.keys(), self.watched)

    def answer(self) -> None:
        """The oldest answer arrives."""
        names, version, seen_version = self.answers.popleft()
        found = self.history[version]
        if names is None:
            self.cache.learn_page(PARENT, list(found.values()), version, seen_version)
        else:
            self.cache.learn(names, found, version, seen_version)


@given(STEPS)
def test_known_names_follow_the_directory(steps: list[tuple[str, str, int]]) -> None:
    """After all changes have arrived, each name that needs no request is as in the directory."""
    it = Cluster()
    for how, name, lag in steps:
        it.step(how, name, lag)
    while it.answers:
        it.answer()
    it.watch()
    if it.cache.is_complete(PARENT):
        assert it.cache.names_of(PARENT) == sorted(it.now)
    for name in NAMES:
        known = it.cache.find(name)
        if not it.cache.enter([name]):
            assert known == it.now.get(name), name
