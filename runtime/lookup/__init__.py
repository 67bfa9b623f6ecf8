"""Drafts that are copied from what was written before."""
