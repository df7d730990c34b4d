"""The directory of the cluster: executes requests, stores the changes, and notifies watchers."""
