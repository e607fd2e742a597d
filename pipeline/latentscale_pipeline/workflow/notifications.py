"""Send notifications of an evaluation's outcome, to a webhook or a command.

A notification is one JSON document, with a summary in ``text`` that chat services display. A
webhook's address is often secret, so messages name only its host, and redirects aren't followed. A
command is a list of arguments, run without a shell, and only with ``--allow-code``.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from latentscale_pipeline.errors import BadInput
from latentscale_pipeline.views.formatting import printable
from latentscale_pipeline.workflow.config import Notification

SECONDS = 10.0
"""Timeout of a request."""

PAUSES = (1.0, 4.0)
"""Seconds before the second and the third attempt."""

COMMAND_SECONDS = 60.0
"""Timeout of a command."""


class NotificationError(Exception):
    """A notification couldn't be delivered."""


def refuse_commands(notifications: Sequence[Notification], *, allowed: bool) -> None:
    """Refuse a workflow that names commands unless that is allowed.

    Raises
    ------
    BadInput
        If it names a command that isn't allowed; the message names the first one.
    """
    for notification in notifications:
        if notification.command is not None and not allowed:
            raise BadInput(
                f"notify names a command, {printable(notification.command[0])}, which would be "
                "run; check it, then add --allow-code, or leave it out"
            )


def notify(notification: Notification, document: Mapping[str, Any]) -> None:
    """Deliver a document to the recipient of a notification.

    Raises
    ------
    NotificationError
        If it couldn't be delivered.
    """
    body = json.dumps(document, allow_nan=False).encode()
    if notification.command is not None:
        _run(notification.command, body)
    else:
        _post(_address(notification), body)


def find_missing_addresses(notifications: Sequence[Notification]) -> list[str]:
    """Return what is wrong with the addresses of notifications, a line each."""
    problems = []
    for notification in notifications:
        if notification.webhook_from is not None:
            try:
                _address(notification)
            except NotificationError as error:
                problems.append(f"notify: {error}; nobody will be told there until it is set")
    return problems


def _address(notification: Notification) -> str:
    if notification.webhook is not None:
        return notification.webhook
    name = str(notification.webhook_from)
    address = os.environ.get(name, "")
    if not address.startswith(("https://", "http://")):
        raise NotificationError(f"the environment has no http address in {printable(name)}")
    try:
        _ = urlsplit(address).port
    except ValueError:
        raise NotificationError(f"the address in {printable(name)} can't be read") from None
    return address


def _post(address: str, body: bytes) -> None:
    try:
        host = urlsplit(address).hostname or "an address without a host"
    except ValueError:
        raise NotificationError("the address of a webhook can't be read") from None
    problem = ""
    for pause in (0.0, *PAUSES):
        time.sleep(pause)
        try:
            status = _post_once(address, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            problem = type(error).__name__
            continue
        if 200 <= status < 300:
            return
        problem = f"it answered {status}"
        if status < 500 and status not in {408, 429}:
            break
    raise NotificationError(f"the webhook at {printable(host)} wasn't told: {problem}")


def _post_once(address: str, body: bytes) -> int:
    parts = urlsplit(address)
    kinds = {"https": http.client.HTTPSConnection, "http": http.client.HTTPConnection}
    connection = kinds[parts.scheme](parts.hostname or "", parts.port, timeout=SECONDS)
    try:
        path = parts.path or "/"
        target = f"{path}?{parts.query}" if parts.query else path
        headers = {"Content-Type": "application/json", "User-Agent": "latentscale"}
        if parts.username is not None:
            named = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Authorization"] = f"Basic {b64encode(named.encode()).decode()}"
        connection.request("POST", target, body, headers)
        status: int = connection.getresponse().status
        return status
    finally:
        connection.close()


def _run(command: Sequence[str], body: bytes) -> None:
    try:
        ended = subprocess.run(  # noqa: S603 -- a list, and only with --allow-code
            list(command),
            input=body,
            stdout=subprocess.DEVNULL,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotificationError(f"{printable(command[0])}: {type(error).__name__}") from None
    if ended.returncode != 0:
        raise NotificationError(f"{printable(command[0])} ended with {ended.returncode}")
