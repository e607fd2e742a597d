"""The stages of a job, the tasks of a stage, and the loop that runs missing tasks."""

TASK_THREAD = "latentscale-task"
"""Name of the thread in which a serial executor computes.

A thread can't be stopped. A process that ends early must exit at once, without unloading the
libraries that this thread still uses.
"""
