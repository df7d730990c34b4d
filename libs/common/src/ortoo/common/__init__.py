"""What every part of Ortoo shares: a module is here only when two distributions need it."""
