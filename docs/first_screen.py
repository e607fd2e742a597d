"""Picture the first screen of a report: python docs/first_screen.py [--output FILE].

The corpus is the one of the demo, damaged in three ways: rows of its largest label are left out,
some rows are repeated with small changes, and some are replaced by noise. Needs Chromium and
playwright.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

import numpy as np

import latentscale
from latentscale_pipeline.corpus.ingest.create import ingest

LEFT_OUT, REPEATED, NOISE = 0.5, 60, 30
"""Share of the largest label's rows that are left out, and numbers of the other damaged rows."""

SIZE = {"width": 1400, "height": 900}


def main() -> None:
    """Measure the damaged corpus and write the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    here = Path(__file__).parent / "figures" / "report.png"
    parser.add_argument("--output", type=Path, default=here)
    output = parser.parse_args().output
    with tempfile.TemporaryDirectory() as folder:
        corpus, reference = (
            damaged(Path(folder)),
            stored(Path(folder), "reference", *demo("reference")),
        )
        results = latentscale.run(corpus, reference, output=f"{folder}/jobs", name="generated")
        take(Path(results.report()), output)
    sys.stdout.write(f"{output}\n")


def demo(role: str) -> tuple[np.ndarray, list[str]]:
    """Return the rows and the labels of a corpus of the demo."""
    there = files("latentscale_pipeline") / "demo"
    labels = (there / f"{role}_labels.txt").read_text("utf-8").splitlines()
    return np.load(str(there / f"{role}.npy")).astype("f4"), labels


def damaged(folder: Path) -> str:
    """Store the damaged corpus."""
    generator = np.random.default_rng(0)
    rows, labels = demo("corpus")
    names, counts = np.unique(labels, return_counts=True)
    largest = names[counts.argmax()]
    kept = [i for i, name in enumerate(labels) if name != largest or generator.random() > LEFT_OUT]
    chosen = generator.choice(kept, REPEATED, replace=False)
    noise = generator.normal(size=(NOISE, rows.shape[1])).astype("f4")
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    changed = rows[chosen] + 1e-3 * generator.normal(size=(REPEATED, rows.shape[1])).astype("f4")
    every = np.concatenate([rows[kept], changed, noise])
    names_of = [labels[i] for i in [*kept, *chosen]] + ["(unknown)"] * NOISE
    return stored(folder, "generated", every, names_of)


def stored(folder: Path, name: str, rows: np.ndarray, labels: list[str]) -> str:
    """Ingest rows with their labels and return the corpus."""
    np.save(folder / f"{name}.npy", rows.astype("f2"))
    (folder / f"{name}.txt").write_text("".join(f"{label}\n" for label in labels), "utf-8")
    given = {"labels": str(folder / f"{name}.txt")}
    return ingest([str(folder / f"{name}.npy")], str(folder / f"{name}.zarr"), **given).url


def take(page: Path, output: Path) -> None:
    """Write a picture of the first screen of a page."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        shown = browser.new_page(viewport=SIZE)
        shown.goto(page.as_uri())
        bottom = shown.locator(".first").bounding_box()
        height = int(bottom["y"] + bottom["height"]) + 12 if bottom else SIZE["height"]
        clip = {"x": 0, "y": 0, "width": SIZE["width"], "height": height}
        shown.screenshot(path=output, clip=clip)
        browser.close()


if __name__ == "__main__":
    main()
