"""TLS certificates of one run, readable by its own workers only.

They are in a folder that all machines see and only its owner can read, outside the job's folder. By
default it is in ``~/.latentscale``. The folder is deleted at the end; if a run was killed, the next
run of the same job deletes it. Every run has a new key.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distributed.security import Security

from latentscale_pipeline.config.cluster import TlsFiles
from latentscale_pipeline.errors import BadInput, Incomplete

DEFAULT_FOLDER = "~/.latentscale"

_PLAIN = re.compile(r"[A-Za-z0-9_./+=@-]+")
"""Paths that need no quotes in the script of a batch system."""


def security_of(files: TlsFiles) -> Security:
    """Return the TLS configuration of scheduler, workers and client with these files."""
    return Security(
        tls_ca_file=files.ca_file,
        **{
            f"tls_{role}_{what}": path
            for role in ("scheduler", "worker", "client")
            for what, path in (("cert", files.cert), ("key", files.key))
        },
        require_encryption=True,
    )


@contextmanager
def certificates(job: str, job_folder: Path | None, place: str | None) -> Iterator[TlsFiles]:
    """Create the certificates of a run for the duration of a ``with`` block.

    Parameters
    ----------
    job : str
        Unique name of the job, without special characters.
    job_folder : Path or None
        The job's folder, in which no secret may be written; None if it isn't on a disk.
    place : str or None
        Folder that all machines see; None for :data:`DEFAULT_FOLDER`.

    Raises
    ------
    BadInput
        If the folder isn't private, is in the job's folder, or its name needs quotes in a script.
    Incomplete
        If the folder can't be created.
    """
    base = _private_folder(place or DEFAULT_FOLDER, job_folder)
    for left in base.glob(f"{job}.*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{job}.", dir=base))  # only its owner may enter
    try:
        made = Security.temporary()  # its certificate is its own authority
        certificate, key = (str(folder / name) for name in ("certificate.pem", "key.pem"))
        for path, text in ((certificate, made.tls_ca_file), (key, made.tls_client_key)):
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(str(text))
        yield TlsFiles(ca_file=certificate, cert=certificate, key=key)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _private_folder(place: str, job_folder: Path | None) -> Path:
    base = Path(os.path.expanduser(place)).absolute()
    if not _PLAIN.fullmatch(str(base)):
        raise BadInput(
            f"cluster.shared_folder {str(base)!r}: special characters in its name; choose one of "
            "letters, digits and _ . / + = @ -"
        )
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = base.stat()
    except OSError as error:
        raise Incomplete(
            f"cluster.shared_folder {base}: can't create it ({error.strerror}); choose another"
        ) from None
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadInput(
            f"cluster.shared_folder {base}: others own it or may write to it; choose a folder of "
            "your own (chmod 700)"
        )
    if job_folder is not None and base.resolve().is_relative_to(job_folder.resolve()):
        raise BadInput(
            f"cluster.shared_folder {base} is in the job's folder, which must not contain keys; "
            "choose another"
        )
    return base
