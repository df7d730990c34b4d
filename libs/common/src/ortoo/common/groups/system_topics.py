"""The system topics of every enode. Their ids are higher than all ids that name servers assign.

They store messages that are not visible yet, each with its real topic. While a message waits, its offset in the system
topic identifies it.
"""

from typing import Final

DELAYED_TOPIC_ID: Final = 0xFFFF_FFFF_FFFF_FF01
"""Delayed messages."""
HALF_TOPIC_ID: Final = 0xFFFF_FFFF_FFFF_FF02
"""Messages of open transactions."""
SYSTEM_TOPIC_IDS: Final = frozenset((DELAYED_TOPIC_ID, HALF_TOPIC_ID))
"""All of them."""
