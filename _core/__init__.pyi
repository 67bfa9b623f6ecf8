from . import radix as radix
