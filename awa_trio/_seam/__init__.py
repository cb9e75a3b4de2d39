"""The seam between the runtime and a store: Protocols, and the values that cross them."""
