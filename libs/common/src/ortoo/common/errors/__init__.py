"""Errors: the public kinds, named by what the caller does next, and their place in gRPC's status and back."""

from ortoo.common.errors.kinds import (
    NOT_TAKEN_FIELD,
    AlreadyExists,
    Conflict,
    DataLoss,
    Fenced,
    Forbidden,
    Internal,
    Invalid,
    Moved,
    NotFound,
    OrtooError,
    OutOfRange,
    Overloaded,
    Unavailable,
    Unsupported,
)

__all__ = [
    "NOT_TAKEN_FIELD",
    "AlreadyExists",
    "Conflict",
    "DataLoss",
    "Fenced",
    "Forbidden",
    "Internal",
    "Invalid",
    "Moved",
    "NotFound",
    "OrtooError",
    "OutOfRange",
    "Overloaded",
    "Unavailable",
    "Unsupported",
]
