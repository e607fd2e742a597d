"""The corpus store: vectors in a Zarr group that is either whole and checked, or refused.

``ingest`` makes a corpus from files, ``open_corpus`` opens one, and a :class:`Corpus` reads its
rows. The format is that of DESIGN: plain Zarr v3 for anyone, and a manifest with the checksum of
every shard for us.
"""

from latentscale_pipeline.corpus.append import append
from latentscale_pipeline.corpus.corpus import Corpus, CorruptShard, open_corpus
from latentscale_pipeline.corpus.ingest import Prospect, ensure_corpus, find_corpus, ingest
from latentscale_pipeline.corpus.labelled_rows import rows_by_label, rows_of_label
from latentscale_pipeline.corpus.manifest import Manifest
from latentscale_pipeline.corpus.sources import Sources, open_sources, source_key
from latentscale_pipeline.corpus.verification import Verification, verify

__all__ = [
    "Corpus",
    "CorruptShard",
    "Manifest",
    "Prospect",
    "Sources",
    "Verification",
    "append",
    "ensure_corpus",
    "find_corpus",
    "ingest",
    "open_corpus",
    "open_sources",
    "rows_by_label",
    "rows_of_label",
    "source_key",
    "verify",
]
