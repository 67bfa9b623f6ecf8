"""Structural tags: free text, and spans in it whose form is fixed."""
