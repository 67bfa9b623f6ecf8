"""Bytes objects as arguments and answers of compiled functions.

Numba has a type for them too, but handing one over as that takes longer than to match a prompt. Here a kernel is given
nothing but the address and the length of the content, which the caller keeps alive; and what it returns is copied into
a new object.
"""

from __future__ import annotations

from typing import Any

from numba import extending as typed_extending
from numba.core import cgutils as typed_cgutils
from numba.core import types

extending: Any = typed_extending  # both are without types
cgutils: Any = typed_cgutils


class Packed(types.Type):
    """Attributes, in kernels: `address`, `length` (int64)."""

    def __init__(self) -> None:
        super().__init__("Packed")


@extending.register_model(Packed)
class PackedModel(extending.models.StructModel):  # type: ignore[misc]  # numba's
    """What a kernel is given of it."""

    def __init__(self, manager: Any, of_type: Any) -> None:
        super().__init__(manager, of_type, [("address", types.int64), ("length", types.int64)])


extending.make_attribute_wrapper(Packed, "address", "address")
extending.make_attribute_wrapper(Packed, "length", "length")


def _unbox(of_type: Any, given: Any, context: Any) -> Any:
    """From a bytes object, or a TypeError."""
    builder, word = context.builder, context.context.get_value_type(types.int64)
    content, length = cgutils.alloca_once(builder, cgutils.voidptr_t), cgutils.alloca_once(builder, word)
    is_read = context.pyapi.bytes_as_string_and_size(given, content, length)
    packed = cgutils.create_struct_proxy(of_type)(context.context, builder)
    packed.address = builder.ptrtoint(builder.load(content), word)
    packed.length = builder.load(length)
    return extending.NativeValue(packed._getvalue(), is_error=builder.not_(is_read))


def _box(of_type: Any, value: Any, context: Any) -> Any:
    """A new bytes object."""
    packed = cgutils.create_struct_proxy(of_type)(context.context, context.builder, value)
    content = context.builder.inttoptr(packed.address, cgutils.voidptr_t)
    return context.pyapi.bytes_from_string_and_size(content, packed.length)


def _packed_at(typing_context: Any, address: Any, length: Any) -> Any:
    """In a kernel: so many bytes from an address (both int64) on, to be returned."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        packed = cgutils.create_struct_proxy(signature.return_type)(context, builder)
        packed.address, packed.length = arguments
        return packed._getvalue()

    return Packed()(address, length), generate


extending.unbox(Packed)(_unbox)
extending.box(Packed)(_box)
packed_at: Any = extending.intrinsic(_packed_at)
