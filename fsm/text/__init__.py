"""Regular languages of texts: characters in classes, tables over them, and their algebra; no grammar, no tokens."""
