"""From logits to text: masks, logit edits, the sampler, when an output ends, and the text that may be shown."""
