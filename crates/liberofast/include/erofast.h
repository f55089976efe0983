/*
 * Reads EROFS images in user space: liberofast of erofast.
 *
 * Errors: on failure, functions that return a number return a negative errno, for example -ENOENT,
 * and erofast_error_text() returns one line with image, inode and reason. Damaged structures are
 * -EUCLEAN, streams that cannot be decoded -EIO, unsupported features -EOPNOTSUPP, and a NULL
 * pointer or a wrong argument -EINVAL. A bug in the library is -EIO with its text, never a signal.
 *
 * Threads: an image may be used by any number of threads at once, except that erofast_close() must
 * be the last call. By default the calling thread decompresses and no thread is created. With the
 * option workers=percpu or workers=unbound, worker threads help, and the image must not be used in
 * a child of fork().
 *
 * Inodes are identified by their number (nid) in the image, which is valid while the image is open.
 * Any other number or offset causes an error or returns unrelated data of the image, but never
 * accesses anything outside the image.
 */
#ifndef EROFAST_H
#define EROFAST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An open image. */
struct erofast;

/* Version of the library, for example "1.0.0". */
const char *erofast_version(void);

/*
 * Why this thread's last failed call failed, in one line; never NULL. Valid until another call by
 * this thread fails, or until the thread ends.
 */
const char *erofast_error_text(void);

/*
 * Opens an image. `options` is NULL or a list "name=value,..." (a backslash escapes a comma) of
 *   offset=BYTES|auto       where the image begins in the file (0)
 *   device=PATH             an extra device of the image; repeatable, in device table order
 *   workers=inline|percpu|unbound   which threads decompress (inline: the caller's)
 *   hipri=auto|on|off       real-time priority of workers (off)
 *   sync_decompress=auto|on|off     whether a reader decompresses too (auto)
 *   reserved_pages=N        pages of 4 KiB kept ready for buffers (0)
 *   prefill                 allocate these pages when the image is opened
 *   cache=SIZE              decoded data to cache, with K, M or G (8M)
 *   verity.roothash=HEX, verity.roothashfile=PATH, verity.hashdevice=PATH,
 *   verity.hashoffset=BYTES verify every block that is read
 * On success *image is the image; on failure it is NULL. Returns 0 or a negative errno.
 */
int erofast_open(const char *path, const char *options, struct erofast **image);

/*
 * Like erofast_open, for a file or block device that is open for reading. The descriptor is
 * duplicated: the caller keeps its own, whose position has no effect and does not change.
 */
int erofast_open_fd(int fd, const char *options, struct erofast **image);

/* Closes an image and frees its resources; NULL is ignored. */
void erofast_close(struct erofast *image);

/* The nid of the root directory; 0 for NULL. */
uint64_t erofast_root(const struct erofast *image);

/* For erofast_lookup: does not follow the last component if it is a symlink. */
#define EROFAST_NOFOLLOW 1u

/*
 * Looks up a path from the root of the image, with or without a leading slash. Symlinks are
 * followed inside the image, and `..` stops at its root. Returns 0 or a negative errno.
 */
int erofast_lookup(const struct erofast *image, const char *path, unsigned int flags,
                   uint64_t *nid);

/* Looks up one name in the directory `directory`; no symlink is followed. */
int erofast_lookup_at(const struct erofast *image, uint64_t directory, const char *name,
                      uint64_t *nid);

/* An inode. */
struct erofast_stat {
    uint64_t nid;
    uint64_t size;       /* bytes */
    uint64_t blocks;     /* storage, in units of 512 bytes */
    int64_t mtime;       /* seconds since 1970 */
    uint32_t mtime_nsec;
    uint32_t mode;       /* type and permissions as st_mode */
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    uint32_t rdev_major; /* of device files, else 0 */
    uint32_t rdev_minor;
    uint32_t padding;    /* 0 */
};

/* Returns 0 or a negative errno. */
int erofast_stat(const struct erofast *image, uint64_t nid, struct erofast_stat *stat);

/*
 * Reads from byte `offset` of a file, directory or symlink. Returns the number of bytes, which is
 * less than `size` only at the end of the file and 0 beyond it, or a negative errno. After an error
 * the content of the buffer is undefined.
 */
int64_t erofast_read_at(const struct erofast *image, uint64_t nid, void *buffer, size_t size,
                        uint64_t offset);

/* An entry of a directory. */
struct erofast_dirent {
    uint64_t nid;
    uint64_t next;       /* position after the entry, for erofast_readdir */
    const char *name;    /* ends with NUL; valid until the callback returns */
    size_t name_length;  /* bytes, without the NUL */
    uint32_t type;       /* DT_REG, DT_DIR, ... of <dirent.h>; DT_UNKNOWN for an unknown type */
    uint32_t padding;    /* 0 */
};

/*
 * Called for each entry; the listing continues while it returns 0. It may use the image, to read
 * files and list directories of any size. It must return: no longjmp, no exception.
 */
typedef int (*erofast_dirent_fn)(const struct erofast_dirent *entry, void *context);

/*
 * Calls `each` with `context` for the entries of a directory, including `.` and `..` if stored, in
 * the order of the image, from `position` (0: the beginning) on. Returns 0 at the end, the result
 * of `each` if that is not 0, or a negative errno. Broken entries are left out; all others are
 * passed to `each`, and then the call fails with -EUCLEAN.
 */
int erofast_readdir(const struct erofast *image, uint64_t nid, uint64_t position,
                    erofast_dirent_fn each, void *context);

/*
 * The three calls below return the number of bytes of the whole result, or a negative errno.
 * With `size` 0 nothing is written; if the buffer is too small, the result is -ERANGE.
 */

/* The target of a symlink, without a terminating NUL. */
int64_t erofast_readlink(const struct erofast *image, uint64_t nid, char *buffer, size_t size);

/* The full names of all extended attributes (user.name), each followed by a NUL. */
int64_t erofast_listxattr(const struct erofast *image, uint64_t nid, char *buffer, size_t size);

/* The value of one extended attribute; -ENODATA if the attribute does not exist. */
int64_t erofast_getxattr(const struct erofast *image, uint64_t nid, const char *name,
                         void *buffer, size_t size);

/* Where the bytes of an extent are. */
enum erofast_extent_kind {
    EROFAST_HOLE = 0,       /* nowhere: zeros */
    EROFAST_PLAIN = 1,      /* uncompressed, at `physical` of `device` */
    EROFAST_METADATA = 2,   /* uncompressed, among the metadata: an inline tail */
    EROFAST_COMPRESSED = 3, /* `stored` bytes at `physical` hold the extent, see `algorithm` */
    EROFAST_FRAGMENT = 4    /* at `physical` of the decoded packed inode */
};

enum erofast_algorithm {
    EROFAST_NONE = -1,
    EROFAST_LZ4 = 0,
    EROFAST_LZMA = 1,
    EROFAST_DEFLATE = 2,
    EROFAST_ZSTD = 3
};

/* `physical` is an offset in the decoded metabox, not on the device. */
#define EROFAST_IN_METABOX 1u

/* A piece of a file, and where it is stored. */
struct erofast_extent {
    uint64_t logical;    /* first byte of the file */
    uint64_t length;     /* bytes of the file; never 0 */
    uint64_t physical;   /* byte offset, see the kinds */
    uint64_t stored;     /* stored bytes; 0 for a hole */
    int32_t kind;        /* enum erofast_extent_kind */
    int32_t algorithm;   /* enum erofast_algorithm */
    uint32_t device;     /* 0: the image, 1: its first extra device, and so on */
    uint32_t flags;      /* EROFAST_IN_METABOX */
};

/*
 * The extent that holds byte `offset` of a file. Returns 1, or 0 at or beyond the end of the file,
 * or a negative errno. The next extent begins at logical + length.
 */
int erofast_extent(const struct erofast *image, uint64_t nid, uint64_t offset,
                   struct erofast_extent *extent);

#ifdef __cplusplus
}
#endif

#endif
