"""A snode whose calls all go through grpc.aio: what the queue front is measured against.

python -m bench.unfronted          # takes the place of python -m ortoo.snode
"""

import sys
from unittest import mock

from ortoo.common.grpc.front.core import Core
from ortoo.snode.__main__ import main

if __name__ == "__main__":
    with mock.patch.object(Core, "below", return_value=None):
        sys.exit(main())
