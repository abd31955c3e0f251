"""Memory that was used and freed is used again, and not asked of the system anew."""

import ctypes
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes
import resource
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: a fault for each page of 4 KiB
{first}
pages = []
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(200 << 20)  # given back at once
    pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(*pages)
"""


ADDRESSES = """
import ctypes
from pathlib import Path
from transformer.machine.malloc import keep_memory, return_blocks, return_memory
keep_memory()
{then}
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.malloc.argtypes, library.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]

def held():
    return int(Path("/proc/self/statm").read_text().split()[0]) * 4096 >> 20

before = held()
library.free(library.malloc({megabytes} << 20))  # never touched: addresses alone
kept = held() - before
return_memory()
print(kept, held() - before)
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
@pytest.mark.parametrize(
    "megabytes, then, stays",
    [(900, "", True), (3000, "", False), (900, "return_blocks()", False)],
)
def test_until_it_is_given_back_but_large_blocks_are_at_once(megabytes, then, stays):
    words = [sys.executable, "-c", ADDRESSES.format(megabytes=megabytes, then=then)]
    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    kept, given_back = map(int, output.split())
    assert kept >= 900 if stays else kept < 100
    assert given_back < 100
