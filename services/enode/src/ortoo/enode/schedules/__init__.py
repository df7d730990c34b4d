"""Schedules: recurring messages, by a cron expression or in a fixed period.

In: schedules of operators and programs. Out: a message for each occurrence, appended to a queue of the topic. `rpc`
calls `runner`. `occurrences` decides when a schedule is due.
"""
