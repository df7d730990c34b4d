"""The long streams: many requests in flight on each, answers in each queue's order, bounded in bytes."""
