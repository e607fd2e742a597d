"""The corpus: vectors in a Zarr group, with a checksum for every shard.

The package ``ingest`` creates a corpus from files, ``open_corpus`` opens one, and a
:class:`Corpus` reads its rows. Any Zarr v3 reader can open the group. A manifest beside it lists
every shard with its checksum.
"""

from latentscale_pipeline.corpus.corpus import Corpus, CorruptShard, open_corpus
from latentscale_pipeline.corpus.labelled_rows import number_labels, rows_by_label, rows_of_label
from latentscale_pipeline.corpus.manifest import Manifest
from latentscale_pipeline.corpus.verification import Verification, verify

__all__ = [
    "Corpus",
    "CorruptShard",
    "Manifest",
    "Verification",
    "number_labels",
    "open_corpus",
    "rows_by_label",
    "rows_of_label",
    "verify",
]
