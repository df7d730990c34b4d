"""Sending: messages and batches in, checked and merged, stored at their enode, receipts out; delays, transactions."""
