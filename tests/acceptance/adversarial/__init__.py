"""Nasty corpora, oracles in higher precision, and the brackets of every measure between them."""
