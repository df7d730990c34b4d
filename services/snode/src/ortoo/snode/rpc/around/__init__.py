"""What stands around every call of the server: interceptors, rights, encryption."""
