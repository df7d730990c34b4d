"""The columns of messages as attributes of batches and tables; `make docs` writes the stub with their types."""


class ColumnAttributes:
    """Has an attribute for each column of messages: its arrays, or None where no row has a value."""

    __slots__ = ()
