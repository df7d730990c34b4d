"""The way to storage: links and streams to enodes, locks of queues, attachment."""
