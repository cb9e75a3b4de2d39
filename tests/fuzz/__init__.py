"""Bad input of every kind, from seeded generators: a clear error, and nothing is lost."""
