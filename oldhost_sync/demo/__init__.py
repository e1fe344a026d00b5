"""The demonstration: the half-hour peak against the whole product with real servers, in compressed time."""
