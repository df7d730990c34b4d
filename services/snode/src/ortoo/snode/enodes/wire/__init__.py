"""Requests to enodes as protobuf messages, and their answers as plain values. Only the links of `enodes` import it."""
