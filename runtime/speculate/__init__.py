"""Drafts: tokens believed to come next, how far that pays, and what else a step could save instead."""
