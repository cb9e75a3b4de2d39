"""The tests on each Python, server and set of packages that is supported, as far as a machine has them."""
