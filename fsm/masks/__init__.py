"""Which tokens may come next, as rows of bits; and which leave enough tokens to finish."""
