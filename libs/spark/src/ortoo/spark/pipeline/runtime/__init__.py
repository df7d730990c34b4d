"""Shared parts of the jobs: settings, a Spark session, progress lines, report pages."""
