"""Compiles the sources: CUDA C to PTX by NVRTC, PTX to cubins by ptxas, and takes the code out of the cubins."""
import ctypes
import pathlib
import re
import struct
import subprocess
import tempfile


class Nvrtc:
    """The run-time compiler, loaded as a library."""

    def __init__(self, library, include):
        self.library = ctypes.CDLL(library)
        self.include = include

    def ptx(self, source, sm, options=()):
        """The PTX of a file."""
        text = pathlib.Path(source).read_bytes()
        program = ctypes.c_void_p()
        create = self.library.nvrtcCreateProgram
        if create(ctypes.byref(program), text, pathlib.Path(source).name.encode(), 0, None, None):
            raise SystemExit("nvrtcCreateProgram failed")
        flags = [f"--gpu-architecture=compute_{sm}", "--std=c++17", "-default-device", *(f"-I{path}" for path in self.include), *options]
        array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
        if self.library.nvrtcCompileProgram(program, len(flags), array):
            raise SystemExit(f"{source} for sm_{sm}:\n{self.read(program, 'ProgramLog').decode()}")
        return self.read(program, "PTX").rstrip(b"\0").decode()

    def read(self, program, what):
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self.library, f"nvrtcGet{what}")(program, buffer)
        return buffer.raw


def assemble(ptxas, text, sm, options):
    """The cubin of a PTX text, and what ptxas complained of."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = pathlib.Path(folder, "a.ptx"), pathlib.Path(folder, "a.cubin")
        source.write_text(text)
        run = subprocess.run([ptxas, *options, f"-arch=sm_{sm}", source, "-o", cubin], capture_output=True, text=True)
        return (cubin.read_bytes() if run.returncode == 0 else None), run.stderr


def assemble_kernels(ptxas, head, kernels, sm, options):
    """The cubin of those kernels that ptxas accepts."""
    left = list(kernels)
    while left:
        text, ranges = head, []
        for kernel in left:
            begin = text.count("\n") + 1
            text += kernel
            ranges.append(range(begin, text.count("\n") + 1))
        cubin, complaints = assemble(ptxas, text, sm, options)
        if cubin is not None:
            return cubin
        wrong = {int(line) for line in re.findall(r"line (\d+); error", complaints)}
        kept = [kernel for kernel, lines in zip(left, ranges) if not any(line in lines for line in wrong)]
        if len(kept) == len(left):
            raise SystemExit(complaints)
        left = kept
    return None


def code_of(elf):
    """The bytes of the executable sections of a cubin."""
    table, = struct.unpack_from("<Q", elf, 0x28)
    size, count = struct.unpack_from("<HH", elf, 0x3A)
    code = b""
    for at in range(table, table + size * count, size):
        kind, flags = struct.unpack_from("<IQ", elf, at + 4)
        offset, length = struct.unpack_from("<QQ", elf, at + 24)
        if kind == 1 and flags & 4:
            code += elf[offset:offset + length]
    return code
