"""Replaces the instruction CPUID in the libraries of an environment, for without_avx512.c.

    python -m venv build/avx2
    build/avx2/bin/python -m pip install -e '.[bench]'
    python -m benchmarks.replace_cpuid build/avx2

For processors that do not let CPUID fail (AMD's). In its place comes UD2, which every processor
refuses; without_avx512.c does then what CPUID would have done. So these libraries work no more
without it: the environment is for measuring alone. Needs objdump (binutils).
"""

import re
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tyro

from transformer.commands.command_line import parse_script
from transformer.commands.program import run_command
from transformer.errors import UserError

CPUID, UD2 = b"\x0f\xa2", b"\x0f\x0b"
LIBRARIES = (
    "jaxlib/libjax_common.so",
    "torch/lib/libtorch_cpu.so",
    "torch/lib/libc10.so",
    "ctranslate2.libs/libctranslate2*",
)
"""Those that choose their code by the processor, below site-packages."""


@dataclass(frozen=True)
class ReplaceCpuid:
    """Replace the instruction CPUID in the libraries of an environment."""

    environment: tyro.conf.Positional[Path]
    """A virtual environment that is for nothing else."""


def main(words: list[str]) -> None:
    command = parse_script(ReplaceCpuid, words, "python -m benchmarks.replace_cpuid")
    packages = command.environment / "lib"
    found = [path for name in LIBRARIES for path in packages.glob(f"python3*/site-packages/{name}")]
    if not found:
        raise UserError(f"{command.environment}: none of the libraries is installed there")
    for path in found:
        print(f"{path}: {replace(path)} times")


def replace(path: Path) -> int:
    """Writes the library anew, and says in how many places it was changed."""
    code = bytearray(path.read_bytes())
    segments = list(loaded_segments(code))
    lines = subprocess.run(["objdump", "-d", path], capture_output=True, text=True, check=True)
    addresses = re.findall(r"^\s*(\w+):\t0f a2 .*\tcpuid", lines.stdout, re.MULTILINE)
    for address in (int(digits, 16) for digits in addresses):
        [place] = [a - v + address for v, a, size in segments if v <= address < v + size]
        assert code[place : place + 2] == CPUID
        code[place : place + 2] = UD2
    path.unlink()  # who has the old one open, or a link to it, keeps it
    path.write_bytes(code)
    return len(addresses)


def loaded_segments(elf: bytes) -> Iterator[tuple[int, int, int]]:
    """Virtual address, place in the file and size of what is loaded of a 64-bit ELF file."""
    [first] = struct.unpack_from("<Q", elf, 0x20)
    size, count = struct.unpack_from("<HH", elf, 0x36)
    for number in range(count):
        kind, _, place, address, _, length = struct.unpack_from(
            "<IIQQQQ", elf, first + number * size
        )
        if kind == 1:  # PT_LOAD
            yield address, place, length


if __name__ == "__main__":
    run_command(main)
