"""What happened: plain data, standard library only."""
