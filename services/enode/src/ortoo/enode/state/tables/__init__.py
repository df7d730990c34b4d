"""What the log's frames add up to, table by table. Pure: no clock, no disk, no chance."""
