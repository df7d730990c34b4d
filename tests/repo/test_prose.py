"""What people read is plain technical English: the subject is named, the field's terms are used, one idea a sentence.

The rules are those of docs/contributing/style.md. An exception names the file, the words and the reason.
"""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.repo.prose import Text, texts, words_of
from tests.repo.tree import ROOT, Tree

SENTENCE_WORDS_MAX = 25
STOPS_MAX = 1
"""Colons and semicolons in a sentence."""
HEADING_WORDS_MAX = 12
SUBJECT = r"(?=.{1,72}$)[a-z0-9][a-z0-9 ,/._-]*: [a-z`].*"

BANNED = {
    r"nobody": "no client, no replica: name the subject, or use the passive voice",
    r"who(?:so)?ever|whomever": "name the subject: the client, the caller, the operator, the leader",
    r"so (?:many|much|often|long)(?: (?:an?|each|every|of|that|times|is|are|was|the)|(?=[,.;:]|$))": "a number",
    r"^so (?:many|much|often|long)": "the number, the size, the interval",
    r"how far": "the position, the offset, the lag",
    r"by how much": "the difference, the lag",
    r"anew": "again",
    r"amid": "during, while",
    r"of old": "previous, earlier",
    r"for good": "permanently",
    r"all the same": "still, anyway",
    r"in good order": "gracefully",
    r"by (?:itself|themselves)": "automatically, on its own",
    r"says? so": "name the speaker and the statement",
    r"(?:try|tries|trying) on": "retry",
    r"(?:go|goes|going|went) on": "continue, keep the previous value",
    r"(?:call|calls|called|calling) off": "cancel",
    r"(?:give|gives|gave|given|giving) back": "release, nack, return",
    r"(?:send|sends|sent|sending) back": "nack, retry, return",
    r"heed(?:s|ed)?": "obey, apply",
    r"(?:says?|said) aloud": "log, report",
    r"no more(?! than)": "no longer",
    r"reigns?": "epoch, term of leadership",
    r"tide|census": "durable mark, stats",
    r"(?:the|this|our|whole) house": "the project, the code base",
    r"rooms": "packages, availability zones",
    r"(?:let|lets|letting) go of": "release, drop",
    r"(?:is|are|was|were|be|been|being) over": "ended, complete, expired",
    r"goodbye": "termination notice, close",
    r"(?:hear|hears|heard) of": "learn, receive",
    r"(?:comes?|came|coming) to lead": "become leader",
    r"strangers?": "an unauthenticated client, a foreign file",
}
"""Words that are not used, and the words to use instead."""


def _alone(pattern: str) -> str:
    """The pattern between borders of words."""
    return rf"(?<![\w-])(?:{pattern})(?![\w-])"


ANY_BANNED = re.compile(_alone("|".join(BANNED)), re.IGNORECASE)
CLAUSE = r"(?:^|[.;:]\s+|,\s+(?:and|but|so|or|then|for)\s+)[\"'(]*"
FREE_SUBJECT = re.compile(CLAUSE + r"(?:who|whom|whose|what|those who)\b(?!.*\?)", re.IGNORECASE)
FREE_OBJECT = re.compile(r"\b(?:of|for|by|to|from|with|than|as) (?:who|whom)\b", re.IGNORECASE)

CHECKED_SINCE = "371b27f5"
"""Subjects of commits after this one follow the rule."""

EXCEPTIONS: dict[str, dict[str, str]] = {
    "docs/contributing/style.md": {"Do not start a clause with": "the rule names the words"},
    "libs/testing/src/ortoo/testing/memory_grpc/channel.py": {"failed to connect to all addresses": "gRPC's own text"},
    "tests/e2e/test_roles.py": {"; expected": "an error text that the product has"},
    "tests/e2e/test_unread_output.py": {"No space left on device": "the system's own text"},
    "tests/integration/test_enode_process.py": {
        "; expected": "an error text that the product has",
        "; did you mean": "an error text that the product has",
        "; set name instead": "an error text that the product has",
    },
    "tests/integration/test_message_lives.py": {"by offsets now; before": "the output of a command"},
    "tests/unit/bench/test_peers.py": {"NOT MEASURED": "the form of a skip", "NO matplotlib": "the form of a skip"},
    "tests/repo/test_client_api.py": {"async def send(": "code"},
    "tests/simulation/test_runs.py": {"import gc, sys": "code"},
    "libs/spark/src/ortoo/spark/pipeline/runtime/report_page.py": {"body{font": "a style sheet"},
    "tests/repo/test_prose.py": {"": "the rules name the words that they refuse"},
}
"""File to words to reason. A sentence that contains the words is let through."""


@dataclass(frozen=True)
class Found:
    """One place that breaks a rule."""

    text: Text
    sentence: str
    rule: str

    def __str__(self) -> str:
        return f"{self.text.where}: {self.rule}: {self.sentence.strip()[:160]}"


def breaches(sentence: str) -> Iterator[str]:
    """The rules for sentences that one breaks."""
    if ANY_BANNED.search(sentence.strip()):
        for pattern, instead in BANNED.items():
            if found := re.search(_alone(pattern), sentence.strip(), re.IGNORECASE):
                yield f"not {found[0]!r} but {instead}"
    if (FREE_SUBJECT.search(sentence.strip()) and len(words_of(sentence)) > 2) or FREE_OBJECT.search(sentence):
        yield "'who' or 'what' as a free subject: name the subject"
    if (count := len(words_of(sentence))) > SENTENCE_WORDS_MAX:
        yield f"{count} words, more than {SENTENCE_WORDS_MAX}: one idea a sentence"
    if len(re.findall(r"(?<!`)[:;](?=\s)", sentence)) > STOPS_MAX:
        yield "more than one colon or semicolon: one idea a sentence"


def heading_breaches(heading: str) -> Iterator[str]:
    """The rules for headings that one breaks."""
    if heading.endswith((".", ":", "?")) or len(words_of(heading)) > HEADING_WORDS_MAX:
        yield f"a heading is a noun or an imperative of at most {HEADING_WORDS_MAX} words"


def found_in(tree: Tree) -> Iterator[Found]:
    """Each breach of a rule that no exception names."""
    for text in texts(tree):
        for sentence in text.sentences():
            if any(words in sentence for words in EXCEPTIONS.get(text.file, ())):
                continue
            for rule in [*breaches(sentence), *(heading_breaches(sentence) if text.kind == "heading" else ())]:
                yield Found(text, sentence, rule)


def long_subjects(root: Path, since: str) -> list[str]:
    """Subjects of commits after `since` that break the rule for commits; none where that commit is not known."""
    known = subprocess.run(
        ["git", "-C", str(root), "cat-file", "-e", f"{since}^{{commit}}"], check=False, capture_output=True
    )
    if known.returncode:
        return []
    command = ["git", "-C", str(root), "log", "--no-merges", "--format=%s", f"{since}..HEAD"]
    subjects = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [subject for subject in subjects if not re.fullmatch(SUBJECT, subject)]


def test_what_people_read_is_plain_technical_english(tree: Tree) -> None:
    """No text breaks a rule of docs/contributing/style.md."""
    found = [str(one) for one in found_in(tree)]
    assert not found, "\n".join([f"{len(found)} places", *found[:50]])


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("Nobody serves it.", "not 'Nobody'"),
        ("Who asks is told.", "free subject"),
        ("The log is read, and who waits is woken.", "free subject"),
        ("The log is opened anew.", "not 'anew'"),
        ("One: two; three.", "one colon"),
        (" ".join(["word"] * 26), "26 words"),
    ],
)
def test_each_rule_fires(sentence: str, rule: str) -> None:
    """A sentence that breaks one rule is found by that rule alone."""
    assert [rule in found for found in breaches(sentence)] == [True]


def test_plain_sentences_and_questions_pass() -> None:
    """Relative clauses, questions and sentences of 25 words break no rule."""
    for sentence in ("The client that asks gets an answer.", "Who owns the state?", " ".join(["word"] * 25)):
        assert list(breaches(sentence)) == []


def test_every_kind_of_text_is_read(tmp_path: Path) -> None:
    """A banned word is found in documents, docstrings, comments, literals, protos, the chart and the Makefile."""
    planted = {
        "a.md": "# Nobody\n\nNobody.\n\n- nobody\n\n| nobody |\n|---|\n\n```\nnobody\n```\n",
        "b.py": '"""Nobody."""\n\nx = 1  # nobody\n"""Nobody."""\ny = f"there is nobody {x} here"\nz = "nobody"\n',
        "code.py": '"""Somebody.\n\n    nobody()\n"""\n',
        "c.proto": "// Nobody.\nmessage A {}\n",
        "deploy/chart/d.yaml": "# Nobody.\na: 1\n",
        "Makefile": "help: ## Ask nobody\n",
    }
    found = [(one.text.file, one.text.line) for one in found_in(Tree.planted(tmp_path, planted))]
    assert sorted(found) == [
        ("Makefile", 1), ("a.md", 1), ("a.md", 3), ("a.md", 5), ("a.md", 7),
        ("b.py", 1), ("b.py", 3), ("b.py", 4), ("b.py", 5), ("c.proto", 1), ("deploy/chart/d.yaml", 1),
    ]  # fmt: skip


def test_each_exception_is_needed(tree: Tree) -> None:
    """The words of each exception are in its file, so that none outlives its text."""
    assert [
        (name, words) for name, known in EXCEPTIONS.items() for words in known if words not in tree.text(name)
    ] == []


def test_subjects_of_commits_say_area_and_change() -> None:
    """Every commit since the rule began has a subject of at most 72 characters that names its area."""
    assert long_subjects(ROOT, CHECKED_SINCE) == []


def test_the_rule_for_subjects_fires(tmp_path: Path) -> None:
    """A subject that is too long, has no area or begins with a capital letter is found."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    for subject in ("first", "enode: sync the vote before answering", "Sync the vote", f"enode: {'x' * 70}"):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", subject], check=True)
    first = subprocess.run([*git, "rev-list", "--max-parents=0", "HEAD"], check=True, capture_output=True, text=True)
    assert long_subjects(tmp_path, first.stdout.strip()) == [f"enode: {'x' * 70}", "Sync the vote"]
