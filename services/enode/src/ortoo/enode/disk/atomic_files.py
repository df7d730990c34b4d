"""Small files: replaced in one step, with a head for their kind and CRCs for their integrity.

With several replicas, each must be able to replace its hard state at any time, or it could not vote on a full disk. So
its folder has a reserve: a file of zeros that shrinks when such a file needs space. It shrinks in steps, because other
writers may take the space that a step frees. Files that a start can make again take nothing from it.
"""

import struct
from contextlib import closing, suppress
from pathlib import Path

from ortoo.common.errors import Unsupported
from ortoo.common.records.sealed_batch import crc32c
from ortoo.enode.disk.disk import FULL, Disk, NoDescriptor

CRC_BYTES = 4
TAG_AT, TAG_BYTES = 6, 2
RESERVE_NAME = "reserve"
RESERVE_BYTES = 64 << 10
RESERVE_STEP_BYTES = 8 << 10
"""More than two small files need: a file and its replacement exist at the same time."""


class DamagedFile(ValueError):
    """The bytes are not a whole file of this kind; the message has the reason."""


class FileHead:
    """The first bytes of a binary file: four letters, its version, the folder's tag, and some numbers. Little-endian.

    The tag distinguishes the files of one folder from those of another. The tag is 0 in files of older versions.
    """

    def __init__(self, name: str, magic: bytes, version: int, codes: str) -> None:
        """`name` appears in error messages; `codes` are the `struct` codes of the numbers."""
        self._name = name
        self._magic = magic
        self._version = version
        self._struct = struct.Struct("<4sHH" + codes)
        self.size = self._struct.size

    def pack(self, *numbers: int, tag: int = 0) -> bytes:
        """The head's bytes, without a CRC."""
        return self._struct.pack(self._magic, self._version, tag, *numbers)

    def is_of(self, tag: int, data: bytes) -> bool:
        """Whether a head with a good CRC may be of the folder with this tag. The tag 0 matches every tag."""
        found = int.from_bytes(data[TAG_AT : TAG_AT + TAG_BYTES], "little")
        return tag == 0 or found in (0, tag)

    def unpack(self, data: bytes) -> tuple[int, ...]:
        """The numbers of a head whose CRC was checked. Errors: DamagedFile for another kind of file, Unsupported."""
        if len(data) < self.size:
            raise DamagedFile(f"too short for a {self._name}")
        magic, version, _, *numbers = self._struct.unpack_from(data)
        if magic != self._magic:
            raise DamagedFile(f"not a {self._name}")
        if version != self._version:
            raise Unsupported(f"{self._name} of version {version}; this process supports {self._version}: upgrade it")
        return tuple(numbers)


def with_crc(data: bytes) -> bytes:
    """The bytes and their CRC-32C."""
    return data + crc32c(data).to_bytes(CRC_BYTES, "little")


def without_crc(data: bytes, name: str) -> bytes:
    """The bytes without the CRC that `with_crc` appended. Errors: DamagedFile when the CRC of `name` does not match."""
    body = data[:-CRC_BYTES]
    if len(data) < CRC_BYTES or crc32c(body) != int.from_bytes(data[-CRC_BYTES:], "little"):
        raise DamagedFile(f"the CRC of its {name} does not match")
    return body


def write_atomically(disk: Disk, path: Path, data: bytes, *, uses_reserve: bool = False) -> None:
    """Replace a small file in one step: after a crash it holds the old bytes or the new ones, never a mixture.

    With `uses_reserve`, a file for which a step of the folder's reserve is enough takes space from it on a full disk.
    Errors: OSError, NoDescriptor.
    """
    uses_reserve = uses_reserve and len(data) <= RESERVE_STEP_BYTES
    while True:
        try:
            _replace(disk, path, data)
        except OSError as error:
            if error.errno not in FULL or not uses_reserve or not _release_step(disk, path.parent):
                raise
        else:
            return


def _replace(disk: Disk, path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    try:
        made = disk.open(temporary, create=True)
    except FileExistsError:  # a crash left it
        disk.remove(temporary)
        made = disk.open(temporary, create=True)
    with closing(made) as file:
        file.write(0, [data])
        file.sync_data()
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


def fill_reserve(disk: Disk, folder: Path) -> None:
    """Make the reserve, or let it grow to its full size. On a full disk it stays as it is. Errors: OSError."""
    path = folder / RESERVE_NAME
    try:
        with closing(disk.open(path, create=RESERVE_NAME not in disk.list(folder))) as file:
            if file.size_bytes() < RESERVE_BYTES:
                file.allocate(RESERVE_BYTES)
                file.sync_data()
    except NoDescriptor:
        return
    except OSError as error:
        if error.errno not in FULL:
            raise


def _release_step(disk: Disk, folder: Path) -> bool:
    """Free one step of the reserve; returns False if nothing is left. Errors: OSError, NoDescriptor."""
    with suppress(FileNotFoundError), closing(disk.open(folder / RESERVE_NAME)) as file:
        size_bytes = file.size_bytes()
        file.truncate(max(0, size_bytes - RESERVE_STEP_BYTES))
        return size_bytes > 0
    return False


def read_file(disk: Disk, path: Path) -> bytes | None:
    """A small file's bytes; None when it does not exist."""
    try:
        with closing(disk.open(path, writable=False)) as file:
            return file.read(0, file.size_bytes())
    except FileNotFoundError:
        return None


def read_part(disk: Disk, path: Path, position: int, length: int) -> bytes:
    """Open a file, read up to `length` bytes from `position`, and close the file. Errors: FileNotFoundError."""
    with closing(disk.open(path, writable=False)) as file:
        return file.read(position, length)
