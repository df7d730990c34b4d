"""The long streams: many requests in flight, answers in the order of each queue, bounded in bytes."""
