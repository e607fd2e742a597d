"""Run the command line as ``python -m latentscale_pipeline.cli``."""

from latentscale_pipeline.cli import main

main()
