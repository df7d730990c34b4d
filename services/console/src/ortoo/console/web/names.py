"""Names in sorted lists."""


def name_before(name: str) -> str:
    """A text that sorts before `name` and after every name that sorts before it; empty for the first one.

    A list that continues after this text begins with `name` or the names that follow.
    """
    return f"{name[:-1]}{chr(ord(name[-1]) - 1)}~~~~~~~~" if name and name[-1] > "!" else ""
