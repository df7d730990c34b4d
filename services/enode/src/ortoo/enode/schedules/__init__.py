"""Schedules: messages that are sent again and again, at the times of a rule.

In: schedules of operators and programs. Out: a message for each occurrence, appended to a queue of the topic. `rpc`
calls `runner`. `occurrences` decides when a schedule is due.
"""
