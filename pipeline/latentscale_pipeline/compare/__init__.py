"""Compare a job with a baseline, and check gates on the differences.

Only the rows of ``scores`` are compared, so new measures need no code here. Whether two jobs can be
compared at all depends on the settings of their measures, their scales and their corpora.
"""
