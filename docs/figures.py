"""Draw the figures of the documentation: python docs/figures.py [--output FOLDER].

They are the figures that a notebook shows for the sentence embeddings of the package.
"""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np

import latentscale

ROWS = 600
"""The number of rows that the first page measures."""

GREY = "#7c828a"
"""A colour that is visible on light and dark pages."""


def main() -> None:
    """Write every figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    here = Path(__file__).parent / "figures"
    parser.add_argument("--output", type=Path, default=here, help="folder for the .svg files")
    for path in draw(parser.parse_args().output):
        sys.stdout.write(f"{path}\n")


def draw(folder: Path) -> list[Path]:
    """Draw the figures into a folder."""
    rows = np.load(str(files("latentscale_pipeline") / "demo" / "corpus.npy"))[:ROWS]
    pictures = {
        "magnitude": latentscale.magnitude_function(rows).picture(),
        "heat-trace": latentscale.heat_trace(rows, probes=32).picture(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        # A separate file has no surrounding text from which to take the colour.
        (folder / f"{name}.svg").write_text(picture.replace("currentColor", GREY) + "\n", "utf-8")
    return [folder / f"{name}.svg" for name in pictures]


if __name__ == "__main__":
    main()
