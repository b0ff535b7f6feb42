"""Where the samples of a captured graph lie, and how its loss adds up over them."""
