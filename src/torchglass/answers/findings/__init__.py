"""What looks wrong in a program that ran: one detector per file, each a pure function of the trace."""
