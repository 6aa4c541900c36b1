"""The table: one row a module."""
