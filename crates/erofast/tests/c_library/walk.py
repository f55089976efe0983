"""walk.c in Python: walk.py LIBRARY IMAGE."""

import ctypes
import stat as st
import sys
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_void_p


class Stat(ctypes.Structure):
    _fields_ = [
        ("nid", c_uint64), ("size", c_uint64), ("blocks", c_uint64), ("mtime", c_int64),
        ("mtime_nsec", c_uint32), ("mode", c_uint32), ("nlink", c_uint32), ("uid", c_uint32),
        ("gid", c_uint32), ("rdev_major", c_uint32), ("rdev_minor", c_uint32),
        ("padding", c_uint32),
    ]


class Dirent(ctypes.Structure):
    _fields_ = [
        ("nid", c_uint64), ("next", c_uint64), ("name", c_char_p), ("name_length", c_size_t),
        ("type", c_uint32), ("padding", c_uint32),
    ]


Each = ctypes.CFUNCTYPE(c_int, POINTER(Dirent), c_void_p)
library = ctypes.CDLL(sys.argv[1])
library.erofast_error_text.restype = c_char_p
library.erofast_open.argtypes = [c_char_p, c_char_p, POINTER(c_void_p)]
library.erofast_close.argtypes = [c_void_p]
library.erofast_root.argtypes = [c_void_p]
library.erofast_root.restype = c_uint64
library.erofast_stat.argtypes = [c_void_p, c_uint64, POINTER(Stat)]
library.erofast_read_at.argtypes = [c_void_p, c_uint64, c_void_p, c_size_t, c_uint64]
library.erofast_read_at.restype = c_int64
library.erofast_readdir.argtypes = [c_void_p, c_uint64, c_uint64, Each, c_void_p]
image = c_void_p()
piece = ctypes.create_string_buffer(16 << 20)


def must(code):
    if code < 0:
        sys.exit(library.erofast_error_text().decode())
    return code


def sum_up(path, nid):
    offset = total = filled = 0
    while count := must(library.erofast_read_at(image, nid, piece, len(piece), offset)):
        offset += count
        data = piece.raw[:count]
        zeros = data.count(0)
        if zeros != count:
            total += sum(data)
            filled += count - zeros
    print(path, offset, total, filled)


def walk(path, nid):
    def visit(entry, _):
        entry = entry.contents
        if entry.name in (b".", b".."):
            return 0
        stat = Stat()
        must(library.erofast_stat(image, entry.nid, stat))
        below = f"{path}/{entry.name.decode()}"
        if st.S_ISREG(stat.mode):
            sum_up(below, entry.nid)
        elif st.S_ISDIR(stat.mode):
            walk(below, entry.nid)
        return 0

    must(library.erofast_readdir(image, nid, 0, Each(visit), None))


must(library.erofast_open(sys.argv[2].encode(), None, image))
walk("", library.erofast_root(image))
library.erofast_close(image)
