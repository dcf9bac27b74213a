"""Bytes behind their digest, and files that are replaced at once."""

import os
import threading
from hashlib import blake2b
from pathlib import Path

DIGEST_SIZE = 16


def digest(*parts: bytes) -> bytes:
    """Digest of bytes, which depends on their division into parts."""
    found = blake2b(digest_size=DIGEST_SIZE)
    for part in parts:
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.digest()


def sealed(data: bytes) -> bytes:
    """Bytes behind their digest."""
    return digest(data) + data


def unsealed(data: bytes) -> bytes | None:
    """The bytes that were sealed; None if they are not the same any more."""
    seal, content = data[:DIGEST_SIZE], data[DIGEST_SIZE:]
    return content if digest(content) == seal else None


def replace(file: Path, data: bytes) -> None:
    """Replace a file at once: an interrupt leaves the old one or the new one."""
    part = file.with_name(f"{file.name}.{os.getpid()}-{threading.get_ident()}.part")
    part.write_bytes(data)
    part.replace(file)
