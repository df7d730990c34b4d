"""Sending: messages in, sealed batches over one stream, receipts out; transactions."""
