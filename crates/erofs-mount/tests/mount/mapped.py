"""Clones a mount with mapped owners and compares each file: mapped.py MOUNT. Ends with 3 where the
kernel refuses the mapping."""
import ctypes, errno, os, struct, sys

FIRST, COUNT = 100000, 65536
OPEN_TREE, MOUNT_SETATTR = 428, 442
CLONE_NEWUSER, OPEN_TREE_CLONE, AT_EMPTY_PATH, IDMAP = 0x10000000, 1, 0x1000, 0x100000
libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def namespace():
    """A user namespace whose ids begin at FIRST outside."""
    ready, say_ready = os.pipe()
    end, say_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(say_end)
        call('unshare', CLONE_NEWUSER)
        os.write(say_ready, b'!')
        os.read(end, 1)
        os._exit(0)
    os.read(ready, 1)
    for ids in ('uid_map', 'gid_map'):
        with open(f'/proc/{child}/{ids}', 'w') as file:
            file.write(f'0 {FIRST} {COUNT}')
    opened = os.open(f'/proc/{child}/ns/user', os.O_RDONLY)
    os.close(say_end)
    os.waitpid(child, 0)
    return opened


def clone(path):
    mount = call('syscall', OPEN_TREE, -100, path.encode(), OPEN_TREE_CLONE)
    attributes = struct.pack('QQQQ', IDMAP, 0, 0, namespace())
    call('syscall', MOUNT_SETATTR, mount, b'', AT_EMPTY_PATH, attributes, len(attributes))
    return f'/proc/self/fd/{mount}'


def main(path):
    try:
        mapped = clone(path)
    except OSError as error:
        if error.errno == errno.EINVAL:
            sys.exit(3)
        raise
    compared = 0
    for folder, folders, files in os.walk(mapped):
        for name in folders + files:
            seen = os.path.join(folder, name)
            plain = path + seen[len(mapped):]
            one, other = os.lstat(seen), os.lstat(plain)
            assert (one.st_uid, one.st_gid) == (other.st_uid + FIRST, other.st_gid + FIRST), seen
            assert (one.st_ino, one.st_mode) == (other.st_ino, other.st_mode), seen
            if name in files and not os.path.islink(seen) and os.path.isfile(seen):
                assert open(seen, 'rb').read() == open(plain, 'rb').read(), seen
            compared += 1
    print(compared)


main(sys.argv[1])
