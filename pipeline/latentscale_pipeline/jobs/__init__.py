"""Jobs from beginning to end: plan, run, resume, status, submission."""
