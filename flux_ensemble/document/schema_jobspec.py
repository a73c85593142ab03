"""The JSON Schema of a canonical jobspec V1 (RFC 25), and of the resources in it."""

from __future__ import annotations

from flux_ensemble.document.schema_terms import OBJECT, SYSTEM, integer, list_of, mapping, text

#: Canonical jobspec V1 (RFC 25), as far as Flux itself insists on it.
JOBSPEC_V1 = mapping(
    "a jobspec (RFC 25)",
    {
        "version": {"description": "version 1", "enum": [1]},
        "resources": list_of("a list of resources", OBJECT),
        "tasks": {
            **list_of(
                "a list of one task",
                {
                    **mapping(
                        "a task with the keys command, slot and count",
                        {
                            "command": {
                                "type": "array",
                                "description": "a command as a list of words",
                                "items": {"type": "string", "description": "text"},
                                "minItems": 1,
                            },
                            "slot": text(),
                            "count": {
                                **mapping(
                                    "a mapping with one of per_slot and total",
                                    {"per_slot": integer(1), "total": integer(1)},
                                ),
                                "minProperties": 1,
                                "maxProperties": 1,
                            },
                        },
                        "command",
                        "slot",
                        "count",
                    ),
                    "additionalProperties": True,
                },
            ),
            "minItems": 1,
            "maxItems": 1,
        },
        "attributes": mapping(
            "a mapping with the keys system and user",
            {
                "system": SYSTEM,
                "user": OBJECT,
            },
        ),
    },
    "version",
    "resources",
    "tasks",
)


#: A resource of a jobspec, without what is in `with`.
RESOURCE_V1 = {
    **mapping(
        "a resource such as {type: node, count: 1, with: [...]}",
        {
            "type": text(),
            "count": integer(0),
            "with": list_of("a list of resources", OBJECT),
            "label": text(),
        },
        "type",
        "count",
    ),
    "additionalProperties": True,
}
