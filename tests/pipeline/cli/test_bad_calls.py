"""Bad calls: each is answered in one line that says what is wrong, where, and what to do."""

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import Ended
from tests.support.jobs import run_command, run_here

Command = Callable[..., Ended]

JOB = {
    "name": "done",
    "corpus": "c.zarr",
    "output": "jobs",
    "measures": {"vendi": {"kernels": ["cosine"]}, "duplicates": {}},
    "cluster": {"kind": "serial"},
}

TEXTS = {
    "FILE": "a file",
    "empty.npy": "",
    "empty.yaml": "",
    "array.json": "[[1, 2], [3, 4]]",
    "words.txt": "hello world\n",
    "labels.txt": "a\n" * 60,
    "few_labels.txt": "a\n" * 59,
    "job.yaml": json.dumps(JOB),
    "gates.yaml": "gates: [{score: spread, maxx: 1}]",
    "workflow.yaml": "name: nightly\ncorpora: {corpus: rows.npy}\nhistory: hist\njob: {}\n",
    "syntax.yaml": "name: a\ncorpus: [rows.npy\nmeasures: {}\n",
    "tab.yaml": "name: a\n\tcorpus: rows.npy\n",
    "twice.yaml": "name: a\ncorpus: rows.npy\nname: b\n",
    "list.yaml": "- a\n- b\n",
    "no_corpus.yaml": "name: a\n",
    "gone.yaml": "name: a\ncorpus: gone.npy\n",
    "unknown.yaml": "name: a\ncorpus: rows.npy\nmesures: {}\n",
    "unknown_inside.yaml": "name: a\ncorpus: rows.npy\nmeasures: {heat: {kk: 3}}\n",
    "unknown_measure.yaml": "name: a\ncorpus: rows.npy\nmeasures: {haet: {}}\n",
    "words.yaml": "name: a\ncorpus: rows.npy\nmeasures: {heat: {k: many}}\n",
    "negative.yaml": "name: a\ncorpus: rows.npy\nmeasures: {duplicates: {within: -1}}\n",
    "alone.yaml": "name: a\ncorpus: rows.npy\nmeasures: {geomca: {}}\n",
    "dimensions.yaml": (
        "name: a\ncorpus: rows.npy\nreference: wide.npy\nmeasures: {geomca: {}}\n"
        "cluster: {kind: serial}\n"
    ),
}


def write_arrays(place: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(60, 4)).astype("float32")
    missing, infinite = rows.copy(), rows.copy()
    missing[7, 2], infinite[3, 1] = np.nan, np.inf
    for name, array in {
        "rows": rows,
        "wide": np.random.default_rng(2).normal(size=(60, 6)),
        "missing": missing,
        "infinite": infinite,
        "flat": rows[:, 0],
        "cube": rows.reshape(6, 10, 4),
        "objects": np.array([[1, "a"], [2, None]], dtype=object),
        "text": np.array([["a", "b"]]),
        "no_rows": rows[:0],
    }.items():
        np.save(place / f"{name}.npy", array)
    column = pa.array([], pa.list_(pa.float32(), 4))
    pq.write_table(pa.table({"vector": column}), place / "no_rows.parquet")


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus, a finished job, an unfinished one, and all kinds of bad files."""
    place = tmp_path_factory.mktemp("bad")
    write_arrays(place)
    for name, text in TEXTS.items():
        (place / name).write_text(text)
    (place / "folder").mkdir()
    ingested = run_command(
        "ingest", place / "rows.npy", place / "c.zarr", "--labels", place / "labels.txt"
    )
    assert ingested.returncode == 0, ingested.stderr
    config = place / "first.yaml"
    there = {"corpus": str(place / "c.zarr"), "output": str(place / "jobs")}
    config.write_text(json.dumps(JOB | there))
    run_here(config)
    [job] = (place / "jobs").glob("done-*")
    job.rename(place / "job")
    shutil.copytree(place / "job", place / "half")
    for name in ("results.json", "inventory.json"):
        (place / "half" / name).unlink()
    return place


CALLS = [
    (
        "rum job.yaml",
        "no such command 'rum'; did you mean run?",
    ),
    (
        "run job.yaml --outptu x",
        "no such option '--outptu'; did you mean --output?",
    ),
    (
        "run --ref wide.npy rows.npy",
        "no such option '--ref'; did you mean --reference?",
    ),
    (
        "plan --all rows.npy",
        "no such option '--all'; see latentscale plan --help",
    ),
    (
        "run --referense wide.npy rows.npy",
        "no such option '--referense'; did you mean --reference?",
    ),
    (
        "compare job",
        "name a job and, last, the baseline to compare it with; see latentscale compare --help",
    ),
    (
        "plan job.yaml job.yaml",
        "job.yaml job.yaml: name one job file, or only sources; see latentscale plan --help",
    ),
    (
        "run nothere.yaml",
        "nothere.yaml: No such file or directory; name a YAML file that describes a job",
    ),
    (
        "run nothere.npy",
        "nothere.npy: no such file or folder; check the path",
    ),
    (
        "run rows.npy --measures vendi geomca",
        (
            "geomca is a measure; list measures with commas, without spaces; see latentscale run "
            "--help"
        ),
    ),
    (
        "run rows.npy -o cluster=local",
        "-o: cluster must be a mapping of keys, such as {{kind: …}}",
    ),
    (
        "run rows.npy job.yaml",
        "rows.npy job.yaml: name one job file, or only sources; see latentscale run --help",
    ),
    (
        "run c.zarr --vectors labels",
        "{place}/c.zarr/labels: this is text, not vectors; name the field with the vectors",
    ),
    (
        "run gone.yaml",
        "gone.npy: no such file or folder; check the path",
    ),
    (
        "run empty.yaml",
        "empty.yaml: a job must be a mapping with keys such as name and corpus",
    ),
    (
        "run empty.npy",
        "{place}/empty.npy: the file is empty; write it again or leave it out",
    ),
    (
        "run folder",
        "folder: the folder is empty; name the files that hold the vectors",
    ),
    (
        "run job",
        (
            "job: the folder of a job; continue it with latentscale resume job, or look at it "
            "with latentscale status job"
        ),
    ),
    (
        "rows c.zarr",
        (
            "{place}/c.zarr: a corpus, not a job; look at it with latentscale info "
            "{place}/c.zarr, or name the folder of a finished job"
        ),
    ),
    (
        "compare job c.zarr",
        (
            "{place}/c.zarr: a corpus, not a job; look at it with latentscale info "
            "{place}/c.zarr, or name the folder of a finished job"
        ),
    ),
    (
        "rows half",
        "{place}/half: this job isn't finished; run it again to finish it",
    ),
    (
        "compare job half",
        "{place}/half: this job isn't finished; run it again to finish it",
    ),
    (
        "verify nothing",
        "{place}/nothing: no such corpus; check the path, or ingest one there",
    ),
    (
        "verify folder",
        (
            "{place}/folder: an empty folder, neither a job nor a corpus; name another, or run "
            "the job"
        ),
    ),
    (
        "verify rows.npy",
        (
            "{place}/rows.npy: not a corpus (no manifest.json); create one first: latentscale "
            "ingest {place}/rows.npy CORPUS"
        ),
    ),
    (
        "info job",
        (
            "{place}/job: the folder of a job, not a corpus; look at it with latentscale status "
            "{place}/job"
        ),
    ),
    (
        "info nothere.zarr",
        "{place}/nothere.zarr: no such corpus; check the path, or ingest one there",
    ),
    (
        "status c.zarr",
        (
            "{place}/c.zarr: not a job (it has neither plan.json nor a lock); name the folder "
            "of a job, which latentscale list finds below the job's output"
        ),
    ),
    (
        "cancel c.zarr",
        (
            "{place}/c.zarr: not a job (it has neither plan.json nor a lock); name the folder "
            "of a job, which latentscale list finds below the job's output"
        ),
    ),
    (
        "logs nothere",
        "{place}/nothere: nothing is there; name the folder of a job",
    ),
    (
        "verify",
        "missing argument 'CORPUS|JOB'; see latentscale verify --help",
    ),
    (
        "rows nothere",
        (
            "{place}/nothere: no results.json here; name the folder of a finished job, such as "
            "jobs/nightly-1a2b3c4d"
        ),
    ),
    (
        "export-metrics c.zarr",
        (
            "{place}/c.zarr: a corpus, not a job; look at it with latentscale info "
            "{place}/c.zarr, or name the folder of a finished job"
        ),
    ),
    (
        "submit nothere.yaml",
        "nothere.yaml: No such file or directory; name a YAML file that describes a job",
    ),
    (
        "resume nothere",
        (
            "{place}/nothere: no readable config.json to resume from; name a job's folder, or "
            "use latentscale run with the job's configuration"
        ),
    ),
    (
        "run workflow.yaml",
        "workflow.yaml: a workflow, not a job; run it with latentscale workflow run workflow.yaml",
    ),
    (
        "workflow run job.yaml",
        "job.yaml: a job, not a workflow; run it with latentscale run job.yaml",
    ),
    (
        "run syntax.yaml",
        "syntax.yaml: not valid YAML: line 3: expected ',' or ']', but got ':'",
    ),
    (
        "run tab.yaml",
        "tab.yaml: not valid YAML: line 2: found character '\\t' that cannot start any token",
    ),
    (
        "run twice.yaml",
        "twice.yaml: not valid YAML: line 3: name is given twice",
    ),
    (
        "run list.yaml",
        "list.yaml: a job must be a mapping with keys such as name and corpus",
    ),
    (
        "run no_corpus.yaml",
        "no_corpus.yaml: corpus is missing; add this key",
    ),
    (
        "run unknown.yaml",
        "unknown.yaml: mesures is unknown; did you mean measures?",
    ),
    (
        "run unknown_inside.yaml",
        "unknown_inside.yaml: measures.heat.kk is unknown; did you mean k?",
    ),
    (
        "run unknown_measure.yaml",
        "unknown_measure.yaml: measures.haet is unknown; did you mean heat?",
    ),
    (
        "run rows.npy --measures haet",
        "--measures: 'haet' is unknown; did you mean heat?",
    ),
    (
        "run words.yaml",
        "words.yaml: measures.heat.k must be a whole number, not 'many'",
    ),
    (
        "run negative.yaml",
        "negative.yaml: measures.duplicates.within must be greater than 0",
    ),
    (
        "run alone.yaml",
        "alone.yaml: measures.geomca compares with a reference; add reference: or leave it out",
    ),
    (
        "run dimensions.yaml --quiet",
        (
            "measures.geomca needs equal dimensions; the corpus has 4 and the reference 6; "
            "leave it out of measures"
        ),
    ),
    (
        "run rows.npy --preset quik",
        "--preset: 'quik' is unknown; did you mean quick?",
    ),
    (
        "run job.yaml -o name",
        "-o name: write it as section.key=value",
    ),
    (
        'run job.yaml -o "measures.heat=[1"',
        "-o measures.heat=[1: not valid YAML: line 1: expected ',' or ']', but got '<stream end>'",
    ),
    (
        "run job.yaml -o measures.vendi.kernels=nope",
        "-o: measures.vendi.kernels must be a list, such as [nope]",
    ),
    (
        "run job.yaml -o cluster.kind=slrum",
        "-o: cluster.kind is 'slrum'; did you mean slurm?",
    ),
    (
        "run job.yaml -o cluster.memory_limit=lots",
        ("-o: cluster.memory_limit: 'lots' is not a size; write a number and a unit such as 4GiB"),
    ),
    (
        "run job.yaml -o seed=",
        "-o: seed must be a whole number, not null",
    ),
    (
        "run job.yaml -o measures.heat.k=2.5",
        "-o: measures.heat.k must be a whole number, not 2.5",
    ),
    (
        "run job.yaml -o measures.duplicates.within=1e200",
        "-o: measures.duplicates.within must be at most 1e+100",
    ),
    (
        "run rows.npy --output FILE --quiet",
        (
            "{place}/FILE/corpora/….zarr/zarr.json: a file is where a folder is needed; choose "
            "another place"
        ),
    ),
    (
        "ingest rows.npy /proc/x",
        "/proc/x/zarr.json: nothing can be created there; choose another place",
    ),
    (
        "ingest rows.npy FILE",
        "{place}/FILE: it exists and isn't a corpus; give a path that doesn't exist yet",
    ),
    (
        "ingest rows.npy c.zarr",
        "{place}/c.zarr: there is a corpus already; give another path, or --overwrite",
    ),
    (
        "ingest rows.npy e.zarr --format nyp",
        (
            "invalid value for '--format': 'nyp' isn't a format; the formats are npy, npz, "
            "parquet, arrow, hdf5, safetensors, fbin, f16bin, u8bin, i8bin, fvecs, bvecs, "
            "jsonl, text, csv, tsv, word2vec, zarr; see latentscale ingest --help"
        ),
    ),
    (
        "ingest rows.npy e.zarr --labels few_labels.txt",
        (
            "few_labels.txt: 59 labels for 60 rows of vectors; give exactly one per row, in the "
            "order of the sources"
        ),
    ),
    (
        "ingest rows.npy e.zarr --labels nothere.txt",
        "nothere.txt: no such file or folder; check the path",
    ),
    (
        "ingest rows.npy wide.npy e.zarr",
        (
            "{place}/wide.npy: rows of 6 dimensions, but {place}/rows.npy has 4; ingest them "
            "into separate corpora"
        ),
    ),
    (
        "ingest missing.npy e.zarr",
        (
            "{place}/missing.npy: row 7 holds NaN; fix the source, or leave such rows out with "
            "--on-invalid drop, or with drop-zero, which also leaves out rows of zeros "
            "(latentscale ingest, or run SOURCE)"
        ),
    ),
    (
        "ingest infinite.npy e.zarr",
        (
            "{place}/infinite.npy: row 3 holds infinity; fix the source, or leave such rows out "
            "with --on-invalid drop, or with drop-zero, which also leaves out rows of zeros "
            "(latentscale ingest, or run SOURCE)"
        ),
    ),
    (
        "ingest flat.npy e.zarr",
        (
            "{place}/flat.npy: the array has shape (60,), but vectors must have two dimensions "
            "(rows, dimensions); reshape it"
        ),
    ),
    (
        "ingest cube.npy e.zarr",
        (
            "{place}/cube.npy: the array has shape (6, 10, 4), but vectors must have two "
            "dimensions (rows, dimensions); reshape it"
        ),
    ),
    (
        "ingest objects.npy e.zarr",
        (
            "{place}/objects.npy: contains Python objects, which aren't unpickled; save a plain "
            "array: numbers, or texts with array.astype(str)"
        ),
    ),
    (
        "ingest text.npy e.zarr",
        (
            "{place}/text.npy: the values have dtype <U1, but vectors must be floats or "
            "integers; convert them"
        ),
    ),
    (
        "ingest no_rows.npy e.zarr",
        "{place}/no_rows.npy: there are no rows (shape (0, 4)); leave the file out",
    ),
    (
        "ingest no_rows.parquet e.zarr",
        "{place}/no_rows.parquet:vector: there are no rows (shape (0, 4)); leave the file out",
    ),
    (
        "ingest array.json e.zarr",
        (
            "{place}/array.json: JSON, but not one row a line; for an array of rows run jq -c "
            "'.[]' FILE.json > FILE.jsonl, or save the vectors with numpy.save"
        ),
    ),
    (
        "ingest words.txt e.zarr",
        (
            "{place}/words.txt: unknown format (it begins with b'hello wo'); name the format "
            "with ingest --format, or convert the file with numpy.save"
        ),
    ),
    (
        'ingest "none*.npy" e.zarr',
        "none*.npy: no file matches; check the pattern",
    ),
    (
        'rows job --where "leaks = 3"',
        "'leaks = 3': not a condition; write == instead of =",
    ),
    (
        "rows job --where \"row == 3 && label == 'a'\"",
        "\"row == 3 && label == 'a'\": not a condition; write and instead of &&",
    ),
    (
        "rows job --where \"row == 3 || label == 'a'\"",
        "\"row == 3 || label == 'a'\": not a condition; write or instead of ||",
    ),
    (
        'rows job --where "!(row == 3)"',
        "'!(row == 3)': not a condition; write not instead of !",
    ),
    (
        'rows job --where "row <> 3"',
        "'row <> 3': not a condition; write != instead of <>",
    ),
    (
        'rows job --where "row =="',
        "'row ==': not a condition (invalid syntax); write one such as column == 'en'",
    ),
    (
        'rows job --where ""',
        "'': not a condition (invalid syntax); write one such as column == 'en'",
    ),
    (
        'rows job --where "row) or (row"',
        "'row) or (row': not a condition (unmatched ')'); write one such as column == 'en'",
    ),
    (
        "rows job --where \"row > 'a'\"",
        "\"row > 'a'\": text and numbers can't be compared; put text in quotes",
    ),
    (
        'rows job --where "row is 3"',
        (
            "'row is 3': is compares only with null (x is null, x is not null); write == for "
            "other values"
        ),
    ),
    (
        'rows job --where "row + 1 == 2"',
        "'row + 1 == 2': 'row + 1' can't be part of a condition; write one such as column == 'en'",
    ),
    (
        'rows job --where "nothere == 3"',
        (
            "{place}/job: there is no column nothere; it can be row, label, duplicate_of, "
            "near_duplicate_of, nearest, nearest_distance, vendi_influence"
        ),
    ),
    (
        "rows job --only near-duplicates --only exact-duplicates",
        (
            "--only takes one reason; for several: --where '(near_duplicate_of is not null) "
            "or (duplicate_of is not null)'; see latentscale rows --help"
        ),
    ),
    (
        'rows job --where "label == music"',
        "{place}/job: there is no column music; text stands in quotes: 'music'",
    ),
    (
        'rows job --only near-duplicates --where "row = 1"',
        "'row = 1': not a condition; write == instead of =",
    ),
    (
        "rows job --sort label",
        "label is text, which isn't sorted; choose a column of numbers",
    ),
    (
        "rows job --sort row:up",
        "{place}/job: there is no column row:up; did you mean row?",
    ),
    (
        "rows job --columns rw",
        "{place}/job: there is no column rw; did you mean row?",
    ),
    (
        "rows job --output rows.xlsx",
        "rows.xlsx: unknown suffix; use a path that ends in .parquet, .csv or .jsonl",
    ),
    (
        "rows job --output FILE/rows.csv",
        (
            "FILE/rows.csv: a folder where a file is expected, or a file where a folder is; "
            "check the path"
        ),
    ),
    (
        "report job --format pdf",
        (
            "invalid value for '--format': 'pdf' is not one of 'html', 'md', 'json'; see "
            "latentscale report --help"
        ),
    ),
    (
        "report job --output folder",
        "folder: Is a directory; name a file that can be written",
    ),
    (
        "compare job job --gates gates.yaml",
        "gates.yaml: gates.0.maxx is unknown; did you mean max?",
    ),
    (
        "list nothere",
        "{place}/nothere: nothing is there; name the output folder of jobs",
    ),
    (
        "list FILE",
        "{place}/FILE: a file, not a folder; name the output folder of jobs",
    ),
    (
        "history list nothere",
        (
            "{place}/nothere: nothing is there; name the folder of a history, or begin one with "
            "latentscale history add"
        ),
    ),
    (
        "history list FILE",
        (
            "{place}/FILE: a file, not a folder; name the folder of a history, or begin one with "
            "latentscale history add"
        ),
    ),
    (
        "ingest job j.zarr",
        "job: nothing here but hidden files and jobs; name the files that hold the vectors",
    ),
    (
        "history add hist half",
        "{place}/half: this job isn't finished; run it again to finish it",
    ),
    (
        "export nothere.zarr x.npy",
        "{place}/nothere.zarr: no such corpus; check the path, or ingest one there",
    ),
    (
        "export c.zarr x.xyz",
        "x.xyz: unknown suffix; use a path that ends in .npy or .parquet",
    ),
    (
        "subset c.zarr s.zarr --label zz",
        "{place}/c.zarr: no row has the label 'zz'; check its labels",
    ),
    (
        "subset c.zarr s.zarr --sample 100",
        "{place}/c.zarr: can't draw 100 rows from 60; ask for fewer",
    ),
    (
        "subset c.zarr FILE --sample 3",
        "{place}/FILE: it exists and isn't a corpus; give a path that doesn't exist yet",
    ),
    (
        "power x --change nan",
        "invalid value for '--change': nan isn't finite; see latentscale power --help",
    ),
    (
        "subset x y --drop-duplicates nan",
        "invalid value for '--drop-duplicates': nan isn't finite; see latentscale subset --help",
    ),
]
"""Calls, and what each is answered; ``{place}`` is the folder, and ``…`` a hash."""


@pytest.mark.parametrize(("call", "answer"), CALLS, ids=[call for call, _ in CALLS])
def test_a_bad_call_is_answered_in_one_line(
    latentscale: Command,
    furnished: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    answer: str,
) -> None:
    monkeypatch.chdir(furnished)
    ended = latentscale(*shlex.split(call))
    pattern = re.escape(f"latentscale: {answer.format(place=furnished)}\n").replace("…", ".*")
    assert (ended.code, ended.out) == (2, "")
    assert re.fullmatch(pattern, ended.err), ended.err


def test_a_condition_with_a_sign_in_quotes_is_no_mistake(
    latentscale: Command, furnished: Path
) -> None:
    ended = latentscale("rows", furnished / "job", "--where", "label == '=' or label != '&&'")
    assert (ended.code, ended.err) == (0, "")
