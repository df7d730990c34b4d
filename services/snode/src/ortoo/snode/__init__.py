"""The stateless proxy between clients and storage."""
