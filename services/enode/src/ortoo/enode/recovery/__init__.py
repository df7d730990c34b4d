"""Opening a log: files in; its end, its losses and its state out. docs/formats/crash-safety.md argues why."""
