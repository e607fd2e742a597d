"""Kernel names in scores; earlier versions wrote them without the bandwidth."""

from __future__ import annotations

from collections.abc import Iterable


def complete_names(kernels: Iterable[str | None]) -> dict[str, str]:
    """Map each kernel name without a bandwidth to the only name with one, if there is exactly one.

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
    """Return whether a kernel is the wanted one, which may be given without its bandwidth."""
    return kernel == wanted or kernel.startswith(f"{wanted} ")
