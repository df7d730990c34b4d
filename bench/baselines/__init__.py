"""The systems that Ortoo is compared with, measured in the same run on the same machine."""
