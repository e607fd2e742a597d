"""The workers of a driver on this machine, as processes."""

import psutil


def worker_processes(driver: int) -> list[psutil.Process]:
    """Find the workers of a driver: the children of its fork server, or those that it spawned."""
    children = psutil.Process(driver).children(recursive=True)
    commands = {child.pid: " ".join(child.cmdline()) for child in children}
    return [
        child
        for child in children
        if "spawn_main" in commands[child.pid] or "forkserver" in commands.get(child.ppid(), "")
    ]
