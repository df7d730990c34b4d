"""What the jobs stand on: settings, a Spark session, progress lines, pages of reports."""
