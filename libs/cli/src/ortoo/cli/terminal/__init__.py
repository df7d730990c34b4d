"""How commands are declared, and what becomes of their answers: values in, tables and JSON out. For all commands."""
