"""The engine: requests in, text out."""

if "." not in __name__:  # Python was started in the repository
    raise ImportError("runtime is a part of the package phloem: import phloem.runtime")
