"""JSON Schema → rules over bytes, exactly or refused with a JSON pointer."""
