"""The JSON Schema of Python types, as narrow as pydantic's validators and as wide as its own JSON."""
