"""The calls of the SQL functions, one file a protocol of `_seam.protocol`; `store` is all of them."""
