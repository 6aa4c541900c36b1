"""From raw records to the tables of a trace, when somebody looks."""
