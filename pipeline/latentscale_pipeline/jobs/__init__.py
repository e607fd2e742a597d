"""The life of a job: plan, run, resume, status, submission."""
