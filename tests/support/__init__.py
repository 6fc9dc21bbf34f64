"""What the tests share: lakes of every kind, the reference client, the model, servers."""
