"""The output for people: tables, sentences about events, progress. Nothing here sends requests."""
