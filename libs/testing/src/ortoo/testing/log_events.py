"""The log events of the test servers: name, level, meaning, and the remedy."""

from ortoo.common.logs.log_event import debug, error, warning

METHOD_REGISTERED_LATE = warning(
    "method_registered_late",
    "A method was registered after the server had started. A real gRPC server does not accept this.",
    "Register methods before the start.",
)
HANDLER_CANCELLED = debug(
    "handler_cancelled",
    "A handler was cancelled.",
    "None.",
)
HANDLER_FAILED = error(
    "handler_failed",
    "A handler raised an error.",
    "Fix the handler.",
)
HANDLER_RAISED_ABORT_ERROR = error(
    "handler_raised_abort_error",
    "A handler raised an AbortError itself instead of calling abort.",
    "Call `context.abort`.",
)
HANDLER_RESPONSE_FAILED = error(
    "handler_response_failed",
    "The response of a handler could not be sent.",
    "Fix the handler.",
)
CALL_CALLBACK_FAILED = error(
    "call_callback_failed",
    "A callback of a call raised an error.",
    "Fix the callback.",
)
