"""Errors that end a command, each with its exit code.

The user sees one line: what is wrong, where, and what to do about it. Any other exception is a bug
in this program and is reported as one.
"""

from __future__ import annotations

from collections.abc import Callable


class LatentscaleError(Exception):
    """An error that is reported to the user in one line."""

    exit_code = 3


class GateFailed(LatentscaleError):
    """A gate on a comparison failed (exit code 1)."""

    exit_code = 1


class BadInput(LatentscaleError):
    """Bad usage or bad data (exit code 2): the command fails again until the input is fixed."""

    exit_code = 2


class Incomplete(LatentscaleError):
    """An interrupted or failed part (exit code 3): running the same command again resumes."""

    exit_code = 3


class StoreFailed(Incomplete):
    """A store couldn't be reached or written to within the timeout."""


class StoreFull(StoreFailed):
    """A store is full."""


class SourceChanged(Incomplete):
    """What is read was changed meanwhile; nothing that was read before is kept."""


class TargetMissed(LatentscaleError):
    """A requested accuracy wasn't reached (exit code 2): the settings have to change."""

    exit_code = 2


class Cancelled(Incomplete):
    """The run was cancelled (exit code 3); it can be resumed."""


class Interrupted(BaseException):
    """A signal asked this process to end (exit code 3).

    It isn't a KeyboardInterrupt, because Python may end the process with that signal instead of
    the exit code.
    """


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of this package, also where it is a checkout."""
    return f"pip install 'latentscale[{extra}]'"


def first_line(error: BaseException, clean: Callable[[str], str] = str) -> str:
    """Return the first line with text of an error's message, or its type if it has none.

    ``clean`` takes from the whole message what must not be told.
    """
    lines = clean(str(error)).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
