"""What the differentials need: documents and histories, and the sides that take them."""
