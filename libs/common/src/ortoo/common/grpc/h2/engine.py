"""libnghttp2, by the package ngh2. Only this file imports it."""

try:
    from ngh2 import (
        Configuration,
        Connection,
        ConnectionClosed,
        DataReceived,
        DenialOfServiceError,
        GoAwayReceived,
        NGH2Error,
        PingAcknowledged,
        PingReceived,
        RequestReceived,
        ResponseReceived,
        Role,
        Setting,
        SettingsAcknowledged,
        SettingsReceived,
        StreamClosed,
        StreamReset,
        TrailersReceived,
        WindowUpdated,
    )
except ImportError:  # no package of this version can be installed
    IS_AVAILABLE = False
else:
    IS_AVAILABLE = True

RATE_EXCEEDED = 2
"""The error code with which libnghttp2 ends the connection of a peer that resets too many streams."""

__all__ = [
    "IS_AVAILABLE",
    "RATE_EXCEEDED",
    "Configuration",
    "Connection",
    "ConnectionClosed",
    "DataReceived",
    "DenialOfServiceError",
    "GoAwayReceived",
    "NGH2Error",
    "PingAcknowledged",
    "PingReceived",
    "RequestReceived",
    "ResponseReceived",
    "Role",
    "Setting",
    "SettingsAcknowledged",
    "SettingsReceived",
    "StreamClosed",
    "StreamReset",
    "TrailersReceived",
    "WindowUpdated",
]
