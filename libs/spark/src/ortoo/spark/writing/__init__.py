"""Writing to topics: Arrow batches become record batches, column by column, and are stored before a task is done."""
