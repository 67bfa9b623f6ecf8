"""The compiled core: the inner loops of each room."""

from . import fsm as fsm
