"""The HTTP API: takes changes at once, and tells what became of them."""
