"""One model over several processes, each with a device of its own: what they say to each other."""
