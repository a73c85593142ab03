"""The keys of a document, each declared once, by family.

`forms` has the class `Key` and the parts that forms are made of; the other modules are the
families, and `document` puts them together. From these tables follow the JSON Schema and the check
of the form (`document.schema`), the schema for editors and `explain` (`document.editor_schema`),
which triggers and actions take a key, what expressions and parameters can give, and how plain
values are read (`keys.reading`); docs/keys.py writes the file of the schema, the tables of the
guide, and the types of the keywords of `Job`, `Rule` and `Action` (`flux_ensemble.entry_keys`).
"""
