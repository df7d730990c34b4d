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
SIGN_IN_PAUSED = warning(
    "sign_in_paused",
    "The console refused an attempt to sign in without a call, because the address or the user had failed too often.",
    "Look for a program that guesses secrets, at the address in the line.",
)
USER_SIGNED_OUT = info(
    "user_signed_out",
    "A user signed out at the console.",
    "None.",
)
BODY_SHOWN = info(
    "body_shown",
    "A user requested the content of a message while the console masks contents. The fields name user and message.",
    "None.",
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
