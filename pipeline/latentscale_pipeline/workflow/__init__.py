"""Workflows: scheduled evaluations with gates, history and notifications.

One evaluation goes from ingest to gate: the job is run, compared with the baseline that a rule
picks from the history, held against gates, registered, and told to whoever asked. Whatever is
there already isn't done again, so a schedule may start it as often as it likes.
"""
