"""Keys of objects that no schema names: remembered while a text is written, so that none comes twice."""
