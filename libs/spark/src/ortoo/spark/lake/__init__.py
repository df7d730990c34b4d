"""Lakes: rows in, folders of Parquet files by date out, plain or as Delta tables, each message in them once."""
