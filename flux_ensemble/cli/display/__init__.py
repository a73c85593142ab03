"""What people see: tables, sentences about events, progress. Nothing here asks anybody anything."""
