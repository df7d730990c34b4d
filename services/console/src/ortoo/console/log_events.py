"""The log events of the console: name, level, meaning and remedy."""

from ortoo.common.logs.log_event import error, info, warning

USER_SIGNED_IN = info(
    "user_signed_in",
    "A user signed in at the console. The snode accepted the signature of the user.",
    "None.",
)
SIGN_IN_REFUSED = warning(
    "sign_in_refused",
    "The snode refused the access key or the secret that a browser sent to the console.",
    "Check the user if the event repeats. `ortoo user list` shows the users.",
)
CONSOLE_ACTION = info(
    "console_action",
    "A user changed the cluster through the console. The fields name the user, the action and its object.",
    "None.",
)
CONSOLE_ACTION_REFUSED = warning(
    "console_action_refused",
    "The cluster refused a change that a user requested through the console.",
    "Check the permissions of the user if the user needs the action.",
)
REQUEST_REFUSED = warning(
    "request_refused",
    "The console refused the request of a browser: its host name, its origin or its token is not the console's own.",
    "Add the host name to `allowed_hosts` if browsers use it. Otherwise look for a page that sends such requests.",
)
PAGE_FAILED = error(
    "page_failed",
    "A page or an action of the console failed because of a defect.",
    "Report the defect with the traceback.",
)
