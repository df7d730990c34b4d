"""How `ortoo send` splits its standard input."""

from ortoo.cli.commands.messages import lines_of


async def test_a_line_is_sent_when_it_has_come() -> None:
    """A line is yielded when it is complete, independent of later input and of the chunks."""
    chunks = iter([b"one\ntw", b"o", b"\n\nthree\r\nfour", b""])
    asked: list[int] = []

    def read(size_bytes: int) -> bytes:
        asked.append(size_bytes)
        return next(chunks)

    came = [(len(asked), lines) async for lines in lines_of(read)]
    assert came == [(1, [b"one"]), (2, []), (3, [b"two", b"", b"three\r"]), (4, [b"four"])]
