"""Workflows: scheduled evaluations with gates, history and notifications.

An evaluation runs the job, compares it with the baseline that a rule picks from the history, checks
the gates, registers the job, and sends notifications. Finished steps aren't repeated, so it can be
scheduled as often as needed.
"""
