"""The corpus: vectors in a checked Zarr group.

The folder ``ingest`` makes a corpus from files, ``open_corpus`` opens one, and a :class:`Corpus`
reads its rows. The format is plain Zarr v3 for anyone, and a manifest with the checksum of every
shard for us.
"""

from latentscale_pipeline.corpus.corpus import Corpus, CorruptShard, open_corpus
from latentscale_pipeline.corpus.labelled_rows import rows_by_label, rows_of_label
from latentscale_pipeline.corpus.manifest import Manifest
from latentscale_pipeline.corpus.verification import Verification, verify

__all__ = [
    "Corpus",
    "CorruptShard",
    "Manifest",
    "Verification",
    "open_corpus",
    "rows_by_label",
    "rows_of_label",
    "verify",
]
