"""Describe this machine: processor, cores, memory."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

import psutil

CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files that hold the memory limit of a container."""


def describe_machine() -> dict[str, Any]:
    """Return processor, cores, memory and system as JSON values, without the machine's name."""
    return {
        "processor": processor_model(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "memory_bytes": memory_bytes(),
        "system": f"{platform.system()} {platform.release()}",
    }


def processor_model() -> str:
    """Return the model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:
        lines = ""
    found = re.search(r"^model name\s*:\s*(.+)$", lines, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """Return the memory of the machine, or the limit of the container if that is lower."""
    limits = [int(psutil.virtual_memory().total)]
    for name in CONTAINER_LIMITS:
        try:
            text = Path(name).read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text.isdigit():
            limits.append(int(text))
    return min(limits)
