"""The HTTP server, the protection of requests, sessions, and the rendering of pages."""
