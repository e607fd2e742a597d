"""Kernels of scores, which earlier versions named without their bandwidth."""

from __future__ import annotations

from collections.abc import Iterable


def complete_names(kernels: Iterable[str | None]) -> dict[str, str]:
    """Map each kernel without a bandwidth to the one of that name that has one, if there is one.

    >>> complete_names(["cosine", "rbf", "rbf median"])
    {'rbf': 'rbf median'}
    """
    known = [kernel for kernel in dict.fromkeys(kernels) if kernel is not None]
    found = {kernel: [other for other in known if is_kernel(other, kernel)] for kernel in known}
    return {
        kernel: complete
        for kernel, others in found.items()
        for complete in others
        if complete != kernel and len(others) == 2
    }


def is_kernel(kernel: str, wanted: str) -> bool:
    """Tell whether a kernel is the one wanted, which may leave the bandwidth out."""
    return kernel == wanted or kernel.startswith(f"{wanted} ")
