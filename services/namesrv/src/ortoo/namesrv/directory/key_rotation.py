"""A new key that seals receipt handles: the stored change and the change for watchers."""

from ortoo.common.groups.handle_seal import HandleKey
from ortoo.namesrv.catalog.transaction import CatalogTransaction
from ortoo.namesrv.decisions.handle_keys import KeyRotation
from ortoo.namesrv.decisions.routes.route_change import RouteChange


def add_key(
    rotation: KeyRotation, made: HandleKey, unsigned_handles: bool, stored: CatalogTransaction
) -> tuple[None, RouteChange | None]:
    """Store the key `made`, unless another name server has stored a new key first."""
    keys = stored.handle_keys()
    if not rotation.is_due(keys, made.created_at_ms):
        return None, None
    keys = rotation.add_key(keys, made)
    stored.put_handle_keys(keys)
    distributed = rotation.distributed_keys(keys, unsigned_before=unsigned_handles)
    return None, RouteChange(stored.version, handle_keys=distributed)
