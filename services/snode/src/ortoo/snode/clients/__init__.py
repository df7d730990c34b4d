"""Clients' sessions: registered, notified, commanded, ended; the locks they take themselves."""
