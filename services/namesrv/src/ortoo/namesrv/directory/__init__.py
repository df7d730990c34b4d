"""The directory of the cluster: decisions, storage, leases and watchers, put together."""
