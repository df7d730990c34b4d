"""The data source `ortoo` as Spark sees it: options in, readers and writers out, after everything was checked."""
