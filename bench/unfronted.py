"""An snode or enode whose calls all go through grpc.aio: the baseline for the queue front.

python -m bench.unfronted          # in place of python -m ortoo.snode, or ortoo.enode, by its setting
"""

import importlib
import os
import sys
from unittest import mock

from ortoo.common.grpc.completion_queue.core import CompletionQueue

if __name__ == "__main__":
    role = "enode" if "ORTOO_ENODE_LISTEN_ADDRESS" in os.environ else "snode"
    with mock.patch.object(CompletionQueue, "of_server", return_value=None):
        sys.exit(importlib.import_module(f"ortoo.{role}.__main__").main())
