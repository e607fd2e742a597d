"""The job configuration: sections, overrides, schema."""
