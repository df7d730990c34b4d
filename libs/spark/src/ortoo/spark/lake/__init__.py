"""Lakes: folders of Parquet files by date, plain or as Delta tables. A lake has each message once."""
