"""A durable job queue for Trio, whose only server is PostgreSQL."""
