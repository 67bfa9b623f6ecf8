"""Where KV lies when the pool has no room for it: bytes by key, in host memory and in files. No tokens, no tensors."""

from .block_key import BlockKey
from .disk_tier import DiskTier
from .folder import Folder, open_folder
from .memory_tier import MemoryTier
from .tier import Tier

__all__ = ["BlockKey", "DiskTier", "Folder", "MemoryTier", "Tier", "open_folder"]
