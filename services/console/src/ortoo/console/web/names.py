"""Names in sorted lists."""


def name_before(name: str) -> str:
    """A text that sorts before `name` and after every name that sorts before it; empty for the first one.

    A list that continues after this text begins with `name` or the names that follow.
    """
    if not name or name[-1] <= "!":
        return ""
    before = "\ud7ff" if name[-1] == "\ue000" else chr(ord(name[-1]) - 1)  # between them are no characters
    return f"{name[:-1]}{before}~~~~~~~~"
