"""What commands share: options in, tables and JSON out."""
