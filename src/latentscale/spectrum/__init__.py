"""How the variance of a corpus is spread over its directions, and the lengths of its rows."""
