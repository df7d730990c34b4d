"""How much memory a store's caches may take on this machine, or in this container."""

import dataclasses

from ortoo.enode.log.settings import StoreSettings

INDEX_PERCENT = 25
"""What knowing where everything lies may take of the memory, unless the settings say otherwise."""


def within(settings: StoreSettings, share_percent: int, total_bytes: int) -> StoreSettings:
    """The settings with both caches made smaller, in proportion, where they would exceed their share of the memory.

    The bound of the index is filled in.
    """
    if not settings.index_bytes_max:
        settings = dataclasses.replace(settings, index_bytes_max=total_bytes * INDEX_PERCENT // 100)
    allowed = total_bytes * share_percent // 100
    wanted = settings.recent_bytes + settings.index_bytes
    if wanted <= allowed:
        return settings
    return dataclasses.replace(
        settings,
        recent_bytes=settings.recent_bytes * allowed // wanted,
        index_bytes=settings.index_bytes * allowed // wanted,
    )
