"""The directory of the cluster: requests in, stored changes and news for watchers out. For handlers and the app."""
