"""accounts: lists the accounts of archives and replays that a lake has, or removes the account of an archive."""

from urllib.parse import unquote

from ortoo.common.errors import Invalid
from ortoo.spark.lake.accounts import LakeAccounts
from ortoo.spark.pipeline.jobs.replay_account import PREFIX, Increment
from ortoo.spark.pipeline.runtime.progress import Say
from ortoo.spark.pipeline.runtime.settings import PipelineSettings


def accounts(settings: PipelineSettings, say: Say, *, reset: str = "") -> int:
    """Print each account with its topics and offsets. With `reset`, first remove the account of that id.

    Returns the number of accounts. Errors: NotFound for an unknown id, Invalid when there is no lake.
    """
    lake = settings.open_lake()
    if not lake.exists:
        raise Invalid(f"there is no lake at {lake.path}", field="lake.path")
    kept = LakeAccounts(lake)
    if reset:
        kept.remove(reset)
        say(f"removed the account {reset}; a new checkpoint for its topics would add their messages again")
    found = kept.all()
    for account in found:
        say(f"archive {account.job_id}, checkpoint {account.checkpoint or 'unknown'}")
        for queue, end in sorted(account.end.queues.items()):
            say(f"  queue {queue.queue_id} of {queue.topic} on {queue.enode}: {account.begin.queues[queue]} to {end}")
    names = [unquote(name.removeprefix(PREFIX)) for name in lake.note_names() if name.startswith(PREFIX)]
    for increment in filter(None, (Increment.read(lake, name) for name in names)):
        say(f"replay {increment.job_id} into {increment.topic}: increment {increment.number} is the newest")
    if not found and not names:
        say("the lake has no accounts; the first run of archive makes them")
    return len(found) + len(names)
