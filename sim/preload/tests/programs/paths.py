"""Finds the nodes in the ways that programs look for them, and reaches the driver through the C library's own
handle, as tinygrad does. Prints what it finds."""

import ctypes
import glob
import mmap
import os
import pathlib
import stat

CTRL = "/dev/nvgpu/igpu0/ctrl"
libc = ctypes.CDLL("libc.so.6", use_errno=True)


def kind(status):
    return f"{stat.filemode(status.st_mode)} {os.minor(status.st_rdev)}"


print("stat", kind(os.stat(CTRL)), kind(os.lstat("/dev/nvmap")), stat.filemode(os.stat("/dev/nvgpu").st_mode))
print("access", os.access(CTRL, os.R_OK | os.W_OK), os.access(CTRL, os.X_OK), os.path.exists("/dev/nvgpu/igpu0/x"))
print("list", sorted(os.listdir("/dev/nvgpu/igpu0"))[:4], glob.glob("/dev/nvgpu/*/ctrl"))
print("scan", [(e.name, e.is_dir(), stat.S_ISDIR(e.stat().st_mode)) for e in os.scandir("/dev/nvgpu")])
print("path", pathlib.Path(CTRL).is_char_device())

ctrl = libc.open(CTRL.encode(), os.O_RDWR | os.O_CLOEXEC)
print("fstat", kind(os.fstat(ctrl)))
with open("/dev/nvmap", "r+b", buffering=0) as nvmap:
    print("open", kind(os.fstat(nvmap.fileno())))


class Characteristics(ctypes.Structure):
    """nvgpu_gpu_get_characteristics"""

    _fields_ = [("buf_size", ctypes.c_uint64), ("buf_addr", ctypes.c_uint64)]


buffer = (ctypes.c_uint32 * 256)()
asked = Characteristics(ctypes.sizeof(buffer), ctypes.addressof(buffer))
# NVGPU_GPU_IOCTL_GET_CHARACTERISTICS
answer = libc.ioctl(ctrl, ctypes.c_ulong(0xC0104705), ctypes.byref(asked))
print("ioctl", answer, asked.buf_size, hex(buffer[0]))

libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
SHARED, FIXED, NOREPLACE = mmap.MAP_SHARED, 0x10, 0x100000
PROT = mmap.PROT_READ | mmap.PROT_WRITE
FAILED = ctypes.c_void_p(-1).value


def place(at, flags, fd=ctrl, length=0x1000):
    found = libc.mmap(at, length, PROT, flags, fd, 0)
    return f"errno {ctypes.get_errno()}" if found == FAILED else "there" if found == at else "elsewhere"


free = libc.mmap(0, 0x10000, PROT, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
libc.munmap(free, 0x10000)
print("hint", place(free, SHARED), libc.munmap(free, 0x1000))
print("noreplace", place(free, SHARED | NOREPLACE), place(free, SHARED | NOREPLACE))
# One doorbell for each ctrl file; one that a mapping replaces is given back.
print("second", place(0, SHARED))
print("fixed", place(free, SHARED | FIXED))
anonymous = libc.mmap(free, 0x1000, PROT, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | FIXED, -1, 0)
print("replaced", anonymous == free, place(free + 0x1000, SHARED | FIXED))
print("null", place(0, SHARED | FIXED))
