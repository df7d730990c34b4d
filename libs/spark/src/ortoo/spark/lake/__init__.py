"""Lakes: folders of Parquet files by date, plain or as Delta tables, each message in them once."""
