"""The results of a job: their model, their JSON Schema, reading and writing."""
