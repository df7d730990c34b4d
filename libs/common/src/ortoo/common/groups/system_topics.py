"""The internal topics of every enode. Their ids are above all that name servers assign.

They hold messages that are not visible yet, with their real topic. A message's number there is its id while it waits.
"""

from typing import Final

DELAYED_TOPIC_ID: Final = 0xFFFF_FFFF_FFFF_FF01
"""Delayed messages."""
HALF_TOPIC_ID: Final = 0xFFFF_FFFF_FFFF_FF02
"""Messages of open transactions."""
SYSTEM_TOPIC_IDS: Final = frozenset((DELAYED_TOPIC_ID, HALF_TOPIC_ID))
"""All of them."""
