"""The changes of the schema, oldest first. A change that was released is never edited."""
