"""Memory that was used and freed is used again, and not asked of the system anew."""

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
import resource
{first}
pages = []
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(200 << 20)  # given back at once
    pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(*pages)
"""


HUGE = """
import ctypes
from transformer.machine.malloc import keep_memory, return_memory
keep_memory()
library = ctypes.CDLL(None)
library.malloc.restype = library.sbrk.restype = ctypes.c_void_p
library.malloc.argtypes, library.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
piece = library.malloc(3 << 30)  # never touched: addresses alone
end = library.sbrk(0)
library.free(piece)
print(end - library.sbrk(0))
return_memory()
print(end - library.sbrk(0))
"""


def faults(first: str) -> list[int]:
    """Pages that the system had to find for each of three large pieces of memory."""
    words = [sys.executable, "-c", PROGRAM.format(first=first)]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return [int(number) for number in output.split()]


def is_glibc() -> bool:
    try:
        return hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
    except (OSError, TypeError):
        return False


@pytest.mark.skipif(not is_glibc(), reason="glibc alone is told to keep memory")
def test_freed_memory_stays_with_the_process():
    keep = "from transformer.machine.malloc import keep_memory; keep_memory()"
    assert faults("")[2] > 10_000
    assert faults(keep)[2] < 1_000


@pytest.mark.skipif(not is_glibc(), reason="glibc alone is told to keep memory")
def test_however_much_it_is_until_it_is_given_back():
    words = [sys.executable, "-c", HUGE]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    kept, given_back = map(int, output.split())
    assert kept == 0
    assert given_back >= 3 << 30
