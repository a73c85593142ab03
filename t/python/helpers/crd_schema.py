"""The schema of a CRD as the API server checks it: types, defaults, unknown fields, CEL rules.

Rules are evaluated by cel-python. Those with `oldSelf` are of changes, and need both values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import celpy
import jsonschema

#: What Kubernetes adds to OpenAPI, or JSON Schema reads otherwise.
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_RULES = "x-kubernetes-validations"


class Schema:
    """The schema of the first version of a CRD.

    Args:
        crd: as YAML has it.
    """

    def __init__(self, crd: Mapping[str, Any]) -> None:
        self._schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        self._programs: dict[str, celpy.Runner] = {}

    def problems(
        self, new: dict[str, Any], old: Mapping[str, Any] | None = None, *, strict: bool = False
    ) -> list[str]:
        """What is wrong with an object; defaults are put into it.

        Args:
            new: the object.
            old: what it replaces.
            strict: unknown fields are wrong; otherwise they are dropped.
        """
        found = list(self._known(new, self._schema, "", strict, top=True))
        if found:
            return found
        self._default(new, self._schema)
        validator = jsonschema.Draft7Validator(self._schema)
        found = [
            f"{error.json_path.removeprefix('$.')}: {error.message[-200:]}"
            for error in validator.iter_errors(new)
        ]
        return found or list(self._ruled(new, old, self._schema, ""))

    def _known(
        self, value: Any, schema: Mapping[str, Any], path: str, strict: bool, *, top: bool = False
    ) -> Iterator[str]:
        if isinstance(value, list):
            for number, item in enumerate(value):
                place = f"{path}[{number}]"
                yield from self._known(item, schema.get("items", {}), place, strict)
        if not isinstance(value, dict):
            return
        properties = schema.get("properties", {})
        more = schema.get("additionalProperties")
        for key in list(value):
            place = f"{path}.{key}".lstrip(".")
            if key in properties:
                yield from self._known(value[key], properties[key], place, strict)
            elif more is not None:
                yield from self._known(value[key], more, place, strict)
            elif not (schema.get(_PRESERVE) or (top and key in _TOP) or not properties):
                if strict:
                    yield f'unknown field "{place}"'
                else:
                    del value[key]

    def _default(self, value: Any, schema: Mapping[str, Any]) -> None:
        if isinstance(value, list):
            for item in value:
                self._default(item, schema.get("items", {}))
        if isinstance(value, dict):
            for key, part in schema.get("properties", {}).items():
                if key not in value and "default" in part:
                    value[key] = part["default"]
                if key in value:
                    self._default(value[key], part)

    def _ruled(self, new: Any, old: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
        for rule in schema.get(_RULES, ()):
            changing = "oldSelf" in rule["rule"]
            if (not changing or old is not None) and not self._holds(rule["rule"], new, old):
                yield f"{path}: {rule['message']}".lstrip(": ")
        if isinstance(new, dict):
            for key, part in schema.get("properties", {}).items():
                if key in new:
                    before = old.get(key) if isinstance(old, dict) else None
                    yield from self._ruled(new[key], before, part, f"{path}.{key}".lstrip("."))
        elif isinstance(new, list):
            keys = schema.get("x-kubernetes-list-map-keys")
            if keys:
                named = [tuple(item.get(key) for key in keys) for item in new]
                for double in {name for name in named if named.count(name) > 1}:
                    yield f"{path}: duplicate value: {double!r}"
            for number, item in enumerate(new):
                before = None
                if keys and isinstance(old, list):
                    own = [item.get(key) for key in keys]
                    same = (one for one in old if [one.get(key) for key in keys] == own)
                    before = next(same, None)
                place = f"{path}[{number}]"
                yield from self._ruled(item, before, schema.get("items", {}), place)

    def _holds(self, rule: str, new: Any, old: Any) -> bool:
        if rule not in self._programs:
            environment = celpy.Environment()
            self._programs[rule] = environment.program(environment.compile(rule))
        values = {"self": celpy.json_to_cel(new)}
        if old is not None:
            values["oldSelf"] = celpy.json_to_cel(old)
        return bool(self._programs[rule].evaluate(values))


#: What every object has.
_TOP = ("apiVersion", "kind", "metadata")
