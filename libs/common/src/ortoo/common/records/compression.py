"""Compression of the body column: Zstandard and LZ4, each from an optional library.

`deflate` makes one frame that contains its decompressed size. `inflate` does not trust this size. It never makes more
bytes than the batch declares, and that number was checked against the limit.
"""

import importlib
from enum import IntEnum
from typing import Any

from ortoo.common.errors import Invalid, Unsupported


class Codec(IntEnum):
    """The compression of the body column; the numbers are the proto's."""

    NONE = 1
    ZSTD = 2
    LZ4 = 3


_LIBRARIES = {Codec.ZSTD: ("zstandard", "zstd"), Codec.LZ4: ("lz4.frame", "lz4")}
_ZSTD_LEVEL = 1
"""The fastest level that still compresses text 3 to 5 times."""
_ZSTD_WINDOW_BYTES_MAX = 8 << 20
"""Maximum memory for one frame; no frame within the limits of a batch needs more."""


def deflate(data: bytes, codec: Codec) -> bytes:
    """Compress `data` into one frame that contains its decompressed size. Errors: Unsupported without the library."""
    library = _library(codec)
    if codec is Codec.ZSTD:
        return bytes(library.ZstdCompressor(level=_ZSTD_LEVEL, write_content_size=True).compress(data))
    return bytes(library.compress(data, store_size=True))


def inflate(data: memoryview, codec: Codec, size: int, field: str) -> bytes:
    """Decompress one frame of exactly `size` bytes.

    Raises Invalid, naming `field`, when the frame is damaged, declares or has another size, or is followed by bytes.
    Raises Unsupported when the library is missing. Never makes more than `size` + 1 bytes.
    """
    library = _library(codec)
    try:
        inflated = _zstd(library, data, size, field) if codec is Codec.ZSTD else _lz4(library, data, size, field)
    except (Invalid, MemoryError):
        raise
    except Exception as error:  # each library has its own error for damaged bytes
        raise Invalid(f"the {codec.name} frame is damaged: {error}", field=field) from None
    if len(inflated) != size:
        raise Invalid(f"the {codec.name} frame holds {len(inflated)} bytes; the batch declares {size}", field=field)
    return inflated


def _zstd(library: Any, data: memoryview, size: int, field: str) -> bytes:
    _check_declared(library.frame_content_size(data), size, field)
    decompressor = library.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    return bytes(decompressor.decompress(data, max_output_size=size, allow_extra_data=False))


def _lz4(library: Any, data: memoryview, size: int, field: str) -> bytes:
    _check_declared(library.get_frame_info(data)["content_size"], size, field)
    decompressor = library.LZ4FrameDecompressor()
    inflated = bytes(decompressor.decompress(data, max_length=size + 1))
    if decompressor.unused_data or not decompressor.eof:
        raise Invalid("the LZ4 frame is truncated, or other bytes follow it", field=field)
    return inflated


def _check_declared(declared: int, size: int, field: str) -> None:
    if declared != size:
        raise Invalid(f"the compressed frame declares {declared} bytes; the batch declares {size}", field=field)


def _library(codec: Codec) -> Any:
    module, extra = _LIBRARIES[codec]
    try:
        return importlib.import_module(module)
    except ImportError:
        raise Unsupported(
            f"{codec.name} needs a library that is not installed: pip install 'ortoo[{extra}]'", field="codec"
        ) from None
