"""How it looks, renderer by renderer."""
