"""Connections to the cluster with the credentials of the signed-in users."""
