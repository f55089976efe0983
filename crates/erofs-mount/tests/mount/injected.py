"""Runs system calls in a server, as an image would that has taken it over, and sends requests of its
own over the server's sockets. x86-64, as root: injected.py PID. Prints a JSON object of what was
answered: the name of an error, or a value."""

import ctypes
import errno
import json
import os
import signal
import socket
import struct
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long] * 4
SEIZE, INTERRUPT, GETREGS, SETREGS, SINGLESTEP, CONT, DETACH = 0x4206, 0x4207, 12, 13, 9, 7, 17
NAMES = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
    "fs_base gs_base ds es fs gs"
).split()
NONE = (1 << 64) - 1


def ptrace(request, pid, address=0, data=0):
    if libc.ptrace(request, pid, address, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")


class Tracee:
    """The main thread, which waits in a system call."""

    def __init__(self, pid):
        self.pid = pid
        ptrace(SEIZE, pid)
        self.memory = open(f"/proc/{pid}/mem", "r+b", buffering=0)
        end = time.monotonic() + 60
        while not self.stops_in_call():
            assert time.monotonic() < end, "not in a system call"
            ptrace(CONT, pid)
            time.sleep(0.05)
        self.scratch = self.call(9, 0, 1 << 16, 3, 0x22, NONE)
        assert self.scratch > 0, self.scratch

    def stops_in_call(self):
        ptrace(INTERRUPT, self.pid)
        self.wait(60.0)
        self.saved = self.registers()
        # The instruction before the one to which the call returns.
        self.syscall = self.saved["rip"] - 2
        self.memory.seek(self.syscall)
        return self.memory.read(2) == b"\x0f\x05"

    def wait(self, limit=5.0):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG | 0x40000000)
            if pid:
                assert os.WIFSTOPPED(status), f"the server has ended: {status}"
                return True
            time.sleep(0.0002)
        return False

    def registers(self):
        raw = (ctypes.c_ulonglong * len(NAMES))()
        ptrace(GETREGS, self.pid, 0, ctypes.addressof(raw))
        return dict(zip(NAMES, raw))

    def set_registers(self, values):
        raw = (ctypes.c_ulonglong * len(NAMES))(*(values[name] & NONE for name in NAMES))
        ptrace(SETREGS, self.pid, 0, ctypes.addressof(raw))

    def call(self, number, *arguments):
        registers = dict(self.saved, rip=self.syscall, rax=number, orig_rax=-1)
        registers.update(zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), (0,) * 6))
        registers.update(zip(("rdi", "rsi", "rdx", "r10", "r8", "r9"), arguments))
        self.set_registers(registers)
        ptrace(SINGLESTEP, self.pid)
        if not self.wait(2.0):
            ptrace(INTERRUPT, self.pid)
            self.wait()
            return -errno.ETIMEDOUT
        value = self.registers()["rax"]
        return value - (1 << 64) if value >> 63 else value

    def put(self, content, at=0):
        self.memory.seek(self.scratch + at)
        self.memory.write(content)
        return self.scratch + at

    def get(self, length, at=0):
        self.memory.seek(self.scratch + at)
        return self.memory.read(length)

    def leave(self):
        self.set_registers(dict(self.saved, rax=-errno.EINTR, orig_rax=-1))
        ptrace(DETACH, self.pid)


def answer(value):
    if -4096 < value < 0:
        return errno.errorcode.get(-value, str(value))
    return value


def all_numbers(server, allowed):
    """Each call that the filter does not allow at all, in both ABIs."""
    answers = {}
    for number in range(600):
        if number not in allowed:
            answers[str(number)] = answer(server.call(number, NONE, NONE, NONE, NONE, NONE, NONE))
    for number in range(600):
        answers[f"x32 {number}"] = answer(server.call(0x40000000 | number, NONE, NONE, NONE))
    for number in (1 << 29, (1 << 31) - 2, 0x80000000, 0xFFFFFFFE):
        answers[str(number)] = answer(server.call(number))
    return answers


def opened(server, path, flags):
    value = server.call(257, -100 & NONE, server.put(path.encode() + b"\0"), flags)
    if value < 0:
        return answer(value)
    read = server.call(17, value, server.scratch + 512, 64, 0)
    server.call(3, value)
    return "read" if read >= 0 or flags == 2 else answer(read)


def link(pid, number):
    """Where a descriptor leads; "" if the server has closed it since it was listed."""
    try:
        return os.readlink(f"/proc/{pid}/fd/{number}")
    except FileNotFoundError:
        return ""


def files(server, others):
    """Files by their names, and its own by the links of /proc."""
    pid, helper, sleeper = server.pid, others["helper"], others["sleeper"]
    paths = {
        "/etc/shadow": 0, "/etc/passwd": 0, "/": 0x10000, "/tmp": 0x10000, "/root": 0x10000,
        "/proc": 0x10000, "/dev/fuse": 2, "/dev/mem": 0, "/dev/kmsg": 0, "/dev/null": 2,
        "/sys/fs/fuse/connections": 0x10000, "/run": 0x10000, "/var/log": 0x10000,
        others["image"]: 2, others["mountpoint"]: 0x10000, others["secret"]: 0,
    }
    answers = {f"open {path} {flags}": opened(server, path, flags) for path, flags in paths.items()}
    for name in ("mem", "environ", "maps", "auxv", "cwd", "root", "exe", "fd/0", "io", "stack", "syscall",
                 "clear_refs", "oom_score_adj", "uid_map", "attr/current", "cgroup", "status", "stat"):
        for who, number in (("self", "self"), ("helper", helper), ("nobody", sleeper), ("init", 1)):
            flags = 2 if name in ("mem", "clear_refs", "oom_score_adj", "uid_map") else 0
            answers[f"open /proc/{who}/{name} {flags}"] = opened(server, f"/proc/{number}/{name}", flags)
    for number in sorted(int(entry) for entry in os.listdir(f"/proc/{pid}/fd")):
        what = link(pid, number).split(":")[0]
        if not what:
            continue
        for flags in (0, 2):
            path = f"/proc/self/fd/{number}"
            answers.setdefault(f"open again {what} {flags}", opened(server, path, flags))
    return answers


def arguments(server, others):
    """Calls that the filter allows with some arguments, with others."""
    path = server.put(b"/tmp/erofast-made\0")
    pid, helper, sleeper = server.pid, others["helper"], others["sleeper"]
    tried = {
        "openat O_WRONLY": (257, -100, path, 1), "openat O_CREAT": (257, -100, path, 0o102, 0o600),
        "openat O_TRUNC": (257, -100, path, 0o1000),
        "openat O_TMPFILE": (257, -100, server.put(b"/tmp\0", 128), 0o20200002),
        "openat O_RDWR, high half": (257, -100, path, (1 << 32) | 0o102),
        "open O_CREAT": (2, path, 0o102, 0o600),
        "clone a process": (56, 17), "clone CLONE_VM": (56, 0x4111), "clone3": (435, path, 88),
        "clone CLONE_THREAD and CLONE_NEWUSER": (56, 0x10010F00),
        "clone CLONE_THREAD and CLONE_NEWNS": (56, 0x00030D00),
        "clone CLONE_THREAD and CLONE_NEWNET": (56, 0x40010F00),
        "unshare CLONE_NEWUSER": (272, 0x10000000), "unshare CLONE_FS": (272, 0x200),
        "unshare CLONE_FILES and CLONE_NEWNS": (272, 0x20400),
        "prctl PR_SET_DUMPABLE": (157, 4, 1), "prctl PR_SET_PTRACER": (157, 0x59616D61, NONE),
        "prctl PR_SET_PDEATHSIG": (157, 1, 9), "prctl PR_SET_MM": (157, 35, 1),
        "prctl PR_SET_NO_NEW_PRIVS": (157, 38, 0), "prctl PR_SET_SECCOMP": (157, 22, 0),
        "prctl PR_CAPBSET_READ": (157, 23, 0), "prctl PR_SET_CHILD_SUBREAPER": (157, 36, 1),
        "prctl PR_SET_NAME, high half": (157, (4 << 32) | 15, path),
        "mmap PROT_EXEC": (9, 0, 4096, 5, 0x22, NONE), "mprotect PROT_EXEC": (10, server.scratch, 4096, 5),
        "mprotect PROT_EXEC, high half": (10, server.scratch, 4096, (1 << 32) | 5),
        "tgkill a process of nobody": (234, sleeper, sleeper, 0), "tgkill the helper": (234, helper, helper, 0),
        "kill itself": (62, pid, 0), "setpriority of a user": (141, 2, 0, 0),
        "setpriority of the helper": (141, 0, helper, 1), "sched_setaffinity of the helper":
        (203, helper, 8, server.put(b"\1" + bytes(7), 64)), "sched_setscheduler of the helper":
        (144, helper, 0, server.put(bytes(8), 64)), "prlimit64 sets its own": (302, 0, 7, path, 0),
        "prlimit64 of the helper": (302, helper, 7, 0, path), "sched_setattr with flags": (314, 0, path, 1),
        "fcntl F_SETOWN": (72, 0, 8, pid), "fcntl F_NOTIFY": (72, 0, 1026, 1), "fcntl F_SETLEASE": (72, 0, 1024, 1),
        "fcntl F_ADD_SEALS": (72, 0, 1033, 1), "fcntl F_SETPIPE_SZ": (72, 0, 1031, 1 << 20),
        "ioctl FIONREAD": (16, 0, 0x541B, path), "ioctl TIOCSTI": (16, 0, 0x5412, path),
        "ioctl of FUSE, high half": (16, NONE, (1 << 32) | 0x8004E500, path),
        "umask": (95, 0), "chmod": (90, path, 0o777), "fchmodat": (268, -100, path, 0o777),
        "memfd_create": (319, path, 0), "io_uring_setup": (425, 8, path),
    }
    answers = {}
    for name, (number, *rest) in tried.items():
        answers[name] = answer(server.call(number, *(value & NONE for value in rest)))
    return answers


def descriptors(server):
    """ioctl, sealing, sending and mapping of all that it has open."""
    answers = {}
    for number in sorted(int(entry) for entry in os.listdir(f"/proc/{server.pid}/fd")):
        what = link(server.pid, number)
        if not what:
            continue
        what = what.split(":")[0] if what[0] != "/" else what
        buffer = server.put(bytes(64), 256)
        tried = {
            "ioctl": (16, number, 0x8004E501, buffer), "fchmod": (91, number, 0o777), "fchown": (93, number, 0, 0),
            "ftruncate": (77, number, 0), "fallocate": (285, number, 0, 0, 4096), "flock": (73, number, 2),
            "pwrite64": (18, number, buffer, 1, 0), "sendto": (44, number, buffer, 1, 0, 0, 0),
            "sendmsg": (46, number, buffer, 0), "setsockopt": (54, number, 1, 26, buffer, 4),
            "getdents64": (217, number, buffer, 64), "fsetxattr": (190, number, buffer, buffer, 0, 0),
            "bind": (49, number, buffer, 2), "connect": (42, number, buffer, 2), "listen": (50, number, 1),
            "accept": (43, number, 0, 0), "splice": (275, number, 0, number, 0, 1, 2),
            "copy_file_range": (326, number, 0, number, 0, 1, 0), "fsync": (74, number), "fchdir": (81, number),
            "mmap to execute": (9, 0, 4096, 5, 2, number, 0), "mmap to write": (9, 0, 4096, 3, 1, number, 0),
            "execveat": (322, number, buffer, 0, 0, 0x1000), "name_to_handle_at": (303, number, buffer, buffer, buffer, 0x1000),
        }
        for name, (call, *rest) in tried.items():
            answers.setdefault(f"{name} {what}", answer(server.call(call, *rest)))
    return answers


def taken(pid, number):
    """A duplicate of one of its descriptors."""
    pidfd = os.pidfd_open(pid)
    copy = libc.syscall(438, pidfd, number, 0)
    os.close(pidfd)
    return copy


def ask(connection, packet):
    """What is answered, and the target of a descriptor that comes with it."""
    try:
        connection.send(packet)
        text, control, _, _ = connection.recvmsg(1 << 15, 1 << 10)
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return errno.errorcode[error.errno]
    links = []
    for _, kind, content in control:
        for number in struct.unpack(f"{len(content) // 4}i", content):
            links.append(os.readlink(f"/proc/self/fd/{number}").split(":")[0])
            os.close(number)
    return " ".join([text.decode(errors="replace")] + links)


def sockets(server):
    """Its sequenced-packet sockets by their number."""
    for entry in os.listdir(f"/proc/{server.pid}/fd"):
        if link(server.pid, entry).startswith("socket:"):
            connection = socket.socket(fileno=taken(server.pid, int(entry)))
            if connection.family == socket.AF_UNIX and connection.type & 0xF == socket.SOCK_SEQPACKET:
                connection.settimeout(3)
                yield int(entry), connection


LEGAL = (
    '{"Mount":{"max_read":4096}}', '"HandshakeDone"', '"Served"', '"Resume"', '"InFlight"', '"ReadAhead"',
    '"Decoded"', '"Decoded"', '"Mark"', '{"Open":{"file":0}}', '{"Open":{"file":1}}',
    '{"Open":{"file":18446744073709551615}}', '{"Clone":{"number":0}}', '{"Clone":{"number":4095}}',
    '"Failed"a line of its own', '"KeepDecoded"', '"Events"', '"Wake"', '"LookAhead"', '"Copy"', '"OpenProfile"../x.profile',
) + ('"Broker"',) * 6


def requests(server):
    """Requests in an order of its own; the socket of the helper answers the first."""
    answers = {}
    for number, connection in sockets(server):
        first = ask(connection, b'"InFlight"')
        is_helper = first.startswith('{"Ok"') and "memfd" in first
        kind = "helper" if is_helper else "keeper"
        packets = LEGAL if is_helper else ()
        for index, packet in enumerate(packets):
            answers[f"{kind} {index} {packet}"] = ask(connection, packet.encode())
        if not is_helper:
            paths = ("OpenProfile", b"../x.profile"), ("OpenProfile", b"/etc/passwd"), ("WriteProfile", b"4096"), \
                ("Copy", b""), ("AddDecoded", bytes(4096)), ("WriteDecoded", b"")
            packets = [b'"%s"' % name.encode() + rest for name, rest in paths]
            for packet in packets + [b'"Mount"', b"d..", b"\xff", b"q" * 16000]:
                answers[f"{kind} {packet[:24]!r}"] = ask(connection, packet)
        connection.close()
    return answers


def thirty_two_bits(server):
    """getpid by the gate of 32-bit programs, whose numbers are others: the signal that ends it."""
    server.memory.seek(server.syscall)
    server.memory.write(b"\xcd\x80")
    server.set_registers(dict(server.saved, rip=server.syscall, rax=20, orig_rax=-1))
    ptrace(CONT, server.pid)
    while True:
        pid, status = os.waitpid(server.pid, 0x40000000)
        if os.WIFSIGNALED(status):
            return signal.Signals(os.WTERMSIG(status)).name
        if not os.WIFSTOPPED(status) or os.WSTOPSIG(status) == signal.SIGTRAP:
            return "answered"
        ptrace(CONT, server.pid, 0, os.WSTOPSIG(status))


def main():
    pid, others = int(sys.argv[1]), json.loads(sys.argv[2])
    server = Tracee(pid)
    if others["bits"] == 32:
        json.dump({"ended": thirty_two_bits(server)}, sys.stdout)
        return
    result = {
        "numbers": all_numbers(server, set(others["allowed"])),
        "arguments": arguments(server, others),
        "files": files(server, others),
        "descriptors": descriptors(server),
        "requests": requests(server),
    }
    server.leave()
    json.dump(result, sys.stdout, indent=1)


main()
