"""The deliveries of single messages, and the reasons why a group does not consume."""
