"""The columns of messages as attributes of batches and tables; `make docs` writes the stub with their types."""


class ColumnAttributes:
    """Base class with one attribute for each column of messages: the column's arrays, or None if no row has a value."""

    __slots__ = ()
