"""Maximum mean discrepancy: whether two corpora have the same distribution."""
