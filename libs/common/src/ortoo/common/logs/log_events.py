"""The log events of all processes: name, level, meaning and remedy."""

from ortoo.common.logs.log_event import error, info, warning

NAME_SERVER_LIST_CHANGED = warning(
    "name_server_list_changed",
    "The address server returned another list of name servers.",
    "None if the change was intended.",
)
ADDRESS_SERVER_UNAVAILABLE = error(
    "address_server_unavailable",
    "The address server did not answer with a list of name servers. The process waits.",
    "Start the address server or correct its address.",
)
REGISTRATION_SUCCEEDED = info(
    "registration_succeeded",
    "The process registered itself at a name server.",
    "None.",
)
REGISTRATION_FAILED_RETRYING = error(
    "registration_failed_retrying",
    "A name server did not accept the registration. The process retries.",
    "Check the name server and its credentials.",
)
SETTINGS_RELOADED = warning(
    "settings_reloaded",
    "The settings file was read again.",
    "Restart the process to apply the settings that `at_next_start` lists.",
)
SETTING_RENAMED = warning(
    "setting_renamed",
    "A setting was given by its former name. The setting has effect, but the next version refuses this name.",
    "Use the name in the field `setting`.",
)
SETTING_IGNORED = warning(
    "setting_ignored",
    "A setting that no longer exists was given. The setting has no effect, and the next version refuses it.",
    "Remove the setting in the field `used`.",
)
SETTINGS_CHANGED = warning(
    "settings_changed",
    "An operator changed settings of the running process.",
    "None.",
)
SETTINGS_RELOAD_REJECTED = error(
    "settings_reload_rejected",
    "The settings file has an error. The process keeps the previous settings.",
    "Correct the file.",
)
CONNECTIONS_CLOSED = warning(
    "connections_closed",
    "Connections were closed because their peers did not read responses, sent headers beyond the limit, or "
    "opened many calls without requests. The event has the number of closed connections since the start, by reason.",
    "Look at the peers.",
)
CALL_HEADERS_INVALID = warning(
    "call_headers_invalid",
    "The transport h2 reset a call whose headers violate HTTP/2, such as a metadata value that begins or ends with a "
    "space. The event has the address of a caller, and the number of such calls since the start.",
    "Correct the client, or set `transport` to grpc, which accepts outer spaces.",
)
TRANSPORT_H2_UNAVAILABLE = warning(
    "transport_h2_unavailable",
    "The setting `transport` is h2, but the package ngh2 is not installed. The process serves by grpc.aio.",
    "Install ngh2, or set `transport` to grpc.",
)
CERTIFICATES_RELOADED = info(
    "certificates_reloaded",
    "Changed TLS certificates were read.",
    "None.",
)
DEVELOPMENT_CERTIFICATE_USED = warning(
    "development_certificate_used",
    "TLS uses a certificate that was made for development.",
    "Configure a certificate of your own authority.",
)
CERTIFICATES_RELOAD_FAILED = error(
    "certificates_reload_failed",
    "Changed TLS certificates have an error. The process keeps the previous certificates.",
    "Correct the files before the previous certificates expire.",
)
TASK_CANCEL_TIMEOUT = error(
    "task_cancel_timeout",
    "Tasks did not end after they were cancelled. They are cancelled again.",
    "Report it with the task names.",
)
PERIODIC_STEP_FAILED = warning(
    "periodic_step_failed",
    "A periodic task failed. It runs again at its next interval.",
    "Act on the error in `reason` if the event repeats.",
)
FAILURE_CONTAINED = warning(
    "failure_contained",
    "An expected failure ended one call or background task. The process continues.",
    "Act on the error in `reason` if the event repeats.",
)
DEFECT_CONTAINED = error(
    "defect_contained",
    "An unexpected error ended one call or background task. The process continues.",
    "Report it with the traceback.",
)
LOG_LINES_DROPPED = warning(
    "log_lines_dropped",
    "Log lines were dropped, because their reader was too slow or they could not be written.",
    "Give the log a faster reader, or raise the log level.",
)
SLOW_READERS_EVICTED = warning(
    "slow_readers_evicted",
    "The memory budget is used up, so the peers that read slowest were disconnected. The event has the number of "
    "disconnected peers since the start.",
    "Look for slow consumers, or raise `memory_budget_bytes`.",
)
PROCESS_READY = info(
    "process_ready",
    "The process has started and answers calls.",
    "None.",
)
SHUTDOWN_COMPLETE = info(
    "shutdown_complete",
    "The process has stopped.",
    "None.",
)
SHUTDOWN_SLOW = error(
    "shutdown_slow",
    "The shutdown takes longer than expected. The event names the tasks that still run.",
    "Wait. Report the event if the process has to be killed.",
)
SHUTDOWN_STARTED = info(
    "shutdown_started",
    "The process received a signal and stops gracefully.",
    "None.",
)
SHUTDOWN_BEFORE_READY = info(
    "shutdown_before_ready",
    "The process was stopped during its start.",
    "None.",
)
FATAL_ERROR = error(
    "fatal_error",
    "The process ends because of an error that it cannot handle, such as an error of the operating system.",
    "Act on the error in `reason`.",
)
FATAL_DEFECT = error(
    "fatal_defect",
    "The process ends because of an unexpected error.",
    "Report it with the traceback.",
)
SPANS_DROPPED = warning(
    "spans_dropped",
    "The receiver of traces was too slow, so spans were dropped.",
    "Give the receiver more capacity, or sample less.",
)
METRICS_EXPORTED_AGAIN = info(
    "metrics_exported_again",
    "The receiver of metrics answers again.",
    "None.",
)
METRICS_EXPORT_FAILED_RETRYING = warning(
    "metrics_export_failed_retrying",
    "The receiver of metrics does not answer. The process retries.",
    "Check the receiver.",
)
CONNECTIONS_CLOSED_TOO_MANY = warning(
    "connections_closed_too_many",
    "One address opened too many connections, so its connections that had been silent longest were closed.",
    "Look at the address, or raise the limit of connections for an address.",
)
CONNECTIONS_CLOSED_RAPID_RESET = warning(
    "connections_closed_rapid_reset",
    "A peer opened and reset streams at a high rate, so its connection was closed.",
    "Look at the address: this is an attack, or a defect of a client.",
)
CONNECTIONS_CLOSED_RAPID_PINGS = warning(
    "connections_closed_rapid_pings",
    "A peer sent many pings without data between them, so its connection was closed.",
    "Correct the keepalive settings of the client at the address.",
)
CONNECTIONS_CLOSED_LONG_HEADERS = warning(
    "connections_closed_long_headers",
    "A peer sent headers far beyond the limit, so its connection was closed.",
    "Look at the address: this is an attack, or a defect of a client.",
)
CONNECTIONS_CLOSED_MEMORY = warning(
    "connections_closed_memory",
    "The memory of the process is used up, so the connections that sent the most bytes recently were closed.",
    "Look at the addresses, or raise the memory of the process.",
)
CONNECTION_LIMIT_REACHED = warning(
    "connection_limit_reached",
    "A port has at least 90 % of its maximum number of connections. `closed` is the number of connections that were "
    "closed because their peers were silent.",
    "Raise `connections_max` or the limit of open files, close idle clients, or add a snode.",
)
LOW_FILE_DESCRIPTOR_LIMIT = warning(
    "low_file_descriptor_limit",
    "The process may open fewer file descriptors than recommended, so it accepts fewer connections.",
    "Raise the hard limit of open files, and restart the process: `ulimit -Hn`, `LimitNOFILE=`, or the ulimits of the "
    "container runtime.",
)
