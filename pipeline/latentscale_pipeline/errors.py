"""Errors that end a command, each with its exit code.

A person sees one line: what is wrong, where, and what to do about it. Anything else that escapes
is a defect of this program and is reported as such.
"""

from __future__ import annotations


class LatentscaleError(Exception):
    """An ending that is explained to the user in one line."""

    exit_code = 3


class GateFailed(LatentscaleError):
    """A comparison was made, and a gate on it failed (exit code 1)."""

    exit_code = 1


class BadInput(LatentscaleError):
    """Bad usage or bad data (exit code 2): running again changes nothing until it is mended."""

    exit_code = 2


class Incomplete(LatentscaleError):
    """An interrupted or failed part (exit code 3): running the same command again resumes."""

    exit_code = 3


class StoreFailed(Incomplete):
    """A store that couldn't be reached or written to, for longer than it is waited for."""


class StoreFull(StoreFailed):
    """There is no room in a store."""


class TargetMissed(LatentscaleError):
    """A quality that was asked for wasn't reached (exit code 3), and trying again won't help."""

    exit_code = 3


class Cancelled(Incomplete):
    """A run that ended because someone asked it to (exit code 3); it can be resumed."""


class Interrupted(BaseException):
    """A signal asked this process to end (exit code 3).

    Not a KeyboardInterrupt, after which Python may end the process by that signal instead of the
    exit code it was given.
    """


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, or its kind."""
    lines = str(error).splitlines()
    return lines[0][:300] if lines and lines[0] else type(error).__name__
