"""Parts of the client matrix, see scripts/client_matrix.py."""
