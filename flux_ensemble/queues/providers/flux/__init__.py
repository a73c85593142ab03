"""Members that are jobs of the enclosing Flux instance."""
