"""How much memory a store's caches may take on this machine, or in this container."""

import dataclasses

from ortoo.enode.log.settings import StoreSettings


def within(settings: StoreSettings, share_percent: int, total_bytes: int) -> StoreSettings:
    """The settings with both caches made smaller, in proportion, where they would exceed their share of the memory."""
    allowed = total_bytes * share_percent // 100
    wanted = settings.recent_bytes + settings.index_bytes
    if wanted <= allowed:
        return settings
    return dataclasses.replace(
        settings,
        recent_bytes=settings.recent_bytes * allowed // wanted,
        index_bytes=settings.index_bytes * allowed // wanted,
    )
