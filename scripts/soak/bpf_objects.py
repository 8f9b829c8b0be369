"""The kernel's BPF objects, through bpf(2): their ids, and the entries of a map. Needs root."""

import ctypes
import os
import platform
import re
import struct
from pathlib import Path

SYSCALL = {"x86_64": 321, "aarch64": 280}[platform.machine()]
MAP_GET_NEXT_KEY = 4
OBJ_GET_INFO_BY_FD = 15
# For each kind: the command that walks the ids, and the one that opens an object by its id.
KINDS = {"prog": (11, 13), "map": (12, 14), "link": (31, 30)}
# bpf_map_info: type, id, key_size, value_size, max_entries, map_flags, name.
MAP_INFO = struct.Struct("=6I16s")
# bpf_prog_info: the name.
PROGRAM_NAME = slice(64, 80)

libc = ctypes.CDLL(None, use_errno=True)


def bpf(command, attributes):
    """The result of bpf(2); `attributes` is written to."""
    result = libc.syscall(SYSCALL, command, attributes, len(attributes))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def all_ids(kind):
    """The ids of all objects of a kind on this machine."""
    found, attributes = set(), ctypes.create_string_buffer(16)
    while True:
        try:
            bpf(KINDS[kind][0], attributes)
        except FileNotFoundError:
            return found
        (last,) = struct.unpack_from("=I", attributes.raw, 4)
        found.add(last)
        struct.pack_into("=I", attributes, 0, last)


def ids_in(fdinfo):
    """The ids of the objects behind a file descriptor, from its /proc/PID/fdinfo; a link names its
    program too.

    >>> ids_in("pos: 0\\nflags: 02000002\\nmap_type: 27\\nmap_id:\\t7\\n")
    ('map', 7)
    >>> ids_in("link_type:\\tuprobe_multi\\nlink_id:\\t9\\nprog_id:\\t3\\n")
    ('link', 9)
    >>> ids_in("pos: 0\\n")
    """
    for kind in ("link", "prog", "map"):
        if match := re.search(rf"^{kind}_id:\s*(\d+)", fdinfo, re.MULTILINE):
            return kind, int(match.group(1))
    return None


def held_by(pid):
    """The ids of the objects that a process has file descriptors of, by kind."""
    held = {kind: set() for kind in KINDS}
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            found = ids_in(entry.read_text())
        except FileNotFoundError:
            continue  # closed meanwhile
        if found:
            held[found[0]].add(found[1])
    return held


def open_object(kind, number):
    return bpf(KINDS[kind][1], ctypes.create_string_buffer(struct.pack("=4I", number, 0, 0, 0), 16))


def entries_of_maps(ids, names):
    """The number of entries in the maps of these names, among those with these ids."""
    entries = {}
    for number in ids:
        fd = open_object("map", number)
        try:
            name, key_bytes = name_and_key_bytes(fd)
            if name in names:
                entries[name] = count_keys(fd, key_bytes)
        finally:
            os.close(fd)
    return entries


def info_of(fd):
    info = ctypes.create_string_buffer(256)
    request = struct.pack("=IIQ", fd, len(info), ctypes.addressof(info))
    bpf(OBJ_GET_INFO_BY_FD, ctypes.create_string_buffer(request, 16))
    return info.raw


def name_and_key_bytes(fd):
    _, _, key_bytes, _, _, _, name = MAP_INFO.unpack_from(info_of(fd))
    return name.rstrip(b"\0").decode(), key_bytes


def name_of_program(number):
    fd = open_object("prog", number)
    try:
        return info_of(fd)[PROGRAM_NAME].rstrip(b"\0").decode()
    finally:
        os.close(fd)


def count_keys(fd, key_bytes):
    key, after = (ctypes.create_string_buffer(key_bytes) for _ in range(2))
    place, count = 0, 0
    while True:
        request = struct.pack("=IxxxxQQQ", fd, place, ctypes.addressof(after), 0)
        try:
            bpf(MAP_GET_NEXT_KEY, ctypes.create_string_buffer(request, 32))
        except FileNotFoundError:
            return count
        count += 1
        key.raw = after.raw
        place = ctypes.addressof(key)
