"""How it looks: views turned into text; one file a view, same names as in analyse."""
