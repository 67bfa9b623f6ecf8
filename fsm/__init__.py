"""What may come next: constraints as byte automata, token masks and forced text. Knows no model and no tensors."""
