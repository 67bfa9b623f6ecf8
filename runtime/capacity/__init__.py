"""What a device holds of a model, from its configuration alone: the arithmetic of `phloem plan`."""
