"""A recorded program does what the plain one does."""
