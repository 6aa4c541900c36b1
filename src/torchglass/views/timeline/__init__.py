"""When everything ran: the timeline of a trace, for viewers of timelines."""
