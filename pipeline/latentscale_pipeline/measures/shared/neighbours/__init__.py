"""The neighbours of every row of a corpus, as stages."""
