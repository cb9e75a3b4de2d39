"""A store in memory, one file a protocol of `_seam.protocol`; `store` is all of them."""
