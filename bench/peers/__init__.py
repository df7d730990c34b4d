"""Apache RocketMQ and Apache Kafka beside Ortoo, in one run on one machine: `make bench-peers`."""
