"""Floor 3: the engine, its step thread, streams of deltas, and how a request is checked on its way in."""
