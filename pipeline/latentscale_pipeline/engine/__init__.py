"""Stages as data, the work of one task, and the loop that runs what is missing."""

TASK_THREAD = "latentscale-task"
"""Name of the thread in which a serial executor computes.

It can't be stopped, only left behind: a process that ends early has to end at once, because the
libraries it computes with can't be unloaded under it.
"""
