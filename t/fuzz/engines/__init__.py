"""What `differential.py` needs: random documents and histories, and one side that takes them."""
