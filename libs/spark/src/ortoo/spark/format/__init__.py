"""The data source `ortoo` for Spark: checks all options and creates readers and writers."""
