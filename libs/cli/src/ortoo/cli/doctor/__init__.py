"""`ortoo doctor`: finds problems at an address, with causes and remedies. Only its command imports it."""
