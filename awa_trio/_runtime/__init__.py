"""The worker: nurseries that run attempts. Knows Trio and the seam; no SQL."""
