"""Lakes: folders of Parquet files by date, plain or as Delta tables, with each message once."""
