"""Kubernetes' own word on manifests: the schemas of its objects, and those of Dask's operator.

It runs where ``kubernetes_validate``, ``jsonschema`` and ``dask_kubernetes`` are installed, by
itself as well: ``python schemas.py FILE.yaml ...`` prints what each document is.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import yaml


def custom_schemas() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the schemas of the operator's objects, by version and kind."""
    spec = importlib.util.find_spec("dask_kubernetes")
    if spec is None or spec.origin is None:
        return {}
    found = {}
    for path in Path(spec.origin).parent.glob("operator/deployment/helm/*/crds/*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            if document and document.get("kind") == "CustomResourceDefinition":
                for version in document["spec"]["versions"]:
                    name = f"{document['spec']['group']}/{version['name']}"
                    schema = version["schema"]["openAPIV3Schema"]
                    found[name, document["spec"]["names"]["kind"]] = strict(schema)
    return found


def strict(schema: Any) -> Any:
    """Refuse what Kubernetes would silently leave out: keys that no schema knows."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: strict(value) for key, value in schema.items()}
    closed = inner.get("type") == "object" and isinstance(inner.get("properties"), dict)
    if closed and not inner.get("x-kubernetes-preserve-unknown-fields"):
        inner.setdefault("additionalProperties", False)
    return inner


def check(manifest: dict[str, Any]) -> str:
    """Validate a manifest; return by what it was."""
    import jsonschema
    import kubernetes_validate

    schemas = custom_schemas()
    key = (manifest["apiVersion"], manifest["kind"])
    if key in schemas:
        schema = dict(schemas[key])
        schema["properties"] = {
            **{name: {} for name in ("apiVersion", "kind")},
            **schema["properties"],
            "metadata": {},
        }
        jsonschema.Draft7Validator(schema).validate(manifest)
        return "the operator's schema"
    if key[0] == "kubernetes.dask.org/v1":
        raise LookupError("dask_kubernetes, which has the schema, isn't installed")
    version = kubernetes_validate.latest_version()
    kubernetes_validate.validate(manifest, version, strict=True)
    return f"Kubernetes {version}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        for document in yaml.safe_load_all(Path(name).read_text()):
            sys.stdout.write(f"{json.dumps([document['kind'], check(document)])}\n")
