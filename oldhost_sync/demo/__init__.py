"""The demonstration: the half-hour peak of the brief against the whole product with real servers, in compressed time."""
