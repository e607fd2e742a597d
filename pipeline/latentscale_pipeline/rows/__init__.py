"""The rows of a finished job: what its measures know of each, selected, sorted and written."""
