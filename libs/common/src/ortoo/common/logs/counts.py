"""Counts in texts for people."""

_SINGULAR = {"": "", "are": "is", "have": "has"}


def counted(count: int, noun: str, verb: str = "") -> str:
    """A number with its noun, and with a verb in the form that agrees: `1 message waits`, `2 messages wait`."""
    words = (f"{count}", noun if count == 1 else f"{noun}s", _SINGULAR.get(verb, f"{verb}s") if count == 1 else verb)
    return " ".join(word for word in words if word)
