"""A snode whose push sessions do not check whether tracing is on: the baseline for tracing "off".

python -m bench.untraced          # in place of python -m ortoo.snode
"""

import re
import sys
from pathlib import Path

import ortoo.snode.push.session as seam
from ortoo.snode.__main__ import main

LOOK = re.compile(r"\n +if \(traces := self\._context\.traffic\.traces\) is not None:\n +traces\.\w+\(.*\)")
LOOKS = 2


def remove_seam() -> None:
    """Compile the module again without its two checks."""
    assert seam.__file__ is not None
    source, removed = LOOK.subn("", Path(seam.__file__).read_text())
    assert removed == LOOKS, f"{removed} checks of tracing found, and {LOOKS} are expected"
    exec(compile(source, seam.__file__, "exec"), seam.__dict__)  # our own source


if __name__ == "__main__":
    remove_seam()
    sys.exit(main())
