"""A job: its configuration, its identity, and the folder that holds everything it did."""
