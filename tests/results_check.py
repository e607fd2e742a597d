"""Does a results document keep its contract?"""

import json
from typing import Any

import jsonschema

from latentscale_pipeline.schema import load_schema


def check_results(results: dict[str, Any]) -> None:
    """Raise unless the document follows the shipped schema and is plain JSON.

    NaN and infinity are no JSON: they raise a ValueError, a wrong shape a ValidationError.
    """
    document = json.loads(json.dumps(results, allow_nan=False))
    jsonschema.Draft202012Validator(load_schema()).validate(document)
