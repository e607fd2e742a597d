"""TLS certificates of one run, readable by its own workers only.

They are in a folder that every machine sees and that only its owner can read, outside the job's
folder. The default is a folder in ``~/.latentscale``. The folder is removed at the end; if a run
was killed, the next run of the same job removes it. A key is valid for one run.
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
"""Paths that can stand in a script of a batch system as they are."""


def security_of(files: TlsFiles) -> Security:
    """Return what a scheduler, a worker or a client with these files shows and trusts."""
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
    """Keep the certificates of a run for the time of a ``with`` block.

    Parameters
    ----------
    job : str
        What tells the runs of this job from those of others: plain characters.
    job_folder : Path or None
        Where nothing may be written that is secret; None for one that isn't on a disk.
    place : str or None
        Folder that all machines see; None for :data:`DEFAULT_FOLDER`.

    Raises
    ------
    BadInput
        If the folder isn't private, is the job's, or has a name that can't stand in a script.
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
            f"cluster.shared_folder {str(base)!r}: its name can't stand in a script; choose one of "
            "letters, digits and _ . / + = @ -"
        )
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = base.stat()
    except OSError as error:
        raise Incomplete(
            f"cluster.shared_folder {base}: it can't be made ({error.strerror}); choose another"
        ) from None
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadInput(
            f"cluster.shared_folder {base}: others own it or may write to it; choose a folder of "
            "your own (chmod 700)"
        )
    if job_folder is not None and base.resolve().is_relative_to(job_folder.resolve()):
        raise BadInput(
            f"cluster.shared_folder {base} is in the job's folder, where no key may be; choose "
            "another"
        )
    return base
