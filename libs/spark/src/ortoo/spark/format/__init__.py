"""The data source `ortoo` as Spark sees it; everything is checked here before any task runs."""
