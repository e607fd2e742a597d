"""Draw the figures of the documentation: python docs/figures.py [--output FOLDER].

They are what a notebook shows of the sentence embeddings that come with the package.
"""

from __future__ import annotations

import argparse
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np

import latentscale

ROWS = 600
"""As many as the first page measures."""

GREY = "#7c828a"
"""To be seen on a light page and on a dark one."""


def main() -> None:
    """Write every figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    here = Path(__file__).parent / "figures"
    parser.add_argument("--output", type=Path, default=here, help="folder for the .svg files")
    parser.add_argument("--rows", type=int, default=ROWS)
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    corpus = str(files("latentscale_pipeline") / "demo" / "corpus.npy")
    rows = np.load(corpus)[: asked.rows]
    pictures = {
        "magnitude": latentscale.magnitude_function(rows).picture(),
        "heat-trace": latentscale.heat_trace(rows).picture(),
    }
    for name, picture in pictures.items():
        path = asked.output / f"{name}.svg"
        # In a file of its own a picture has no text to take its colour from.
        path.write_text(picture.replace("currentColor", GREY) + "\n", "utf-8")
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
