"""The results of a job: assembled, described by a schema, and read again."""
