"""The topics that every enode has for itself. Their ids are above all that name servers give out.

Messages that are not to be seen yet lie in them, with their real topic beside them. A message's number there is its id
for as long as it waits.
"""

from typing import Final

DELAYED_TOPIC_ID: Final = 0xFFFF_FFFF_FFFF_FF01
"""Messages that are delivered at a time."""
HALF_TOPIC_ID: Final = 0xFFFF_FFFF_FFFF_FF02
"""Messages of transactions that are not ended."""
SYSTEM_TOPIC_IDS: Final = frozenset((DELAYED_TOPIC_ID, HALF_TOPIC_ID))
"""All of them."""
