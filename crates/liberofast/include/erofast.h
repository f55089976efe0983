/*
 * Reads EROFS images in user space: liberofast of erofast.
 *
 * Errors: functions that return a number return a negative errno, for example -ENOENT, and leave
 * one line with image, inode and reason in erofast_error_text(). Damaged structures are -EUCLEAN,
 * streams that do not decode -EIO, features that are not supported -EOPNOTSUPP, a NULL pointer or a
 * wrong argument -EINVAL. A fault of the library itself is -EIO with its text, never a signal.
 *
 * Threads: an image may be used by any number of threads at once, except that erofast_close() must
 * be the last call. By default the calling thread decompresses and no thread is created; with the
 * option workers=percpu or workers=unbound worker threads help, and the image must not be used in a
 * child of fork().
 *
 * Inodes are named by their number (nid) in the image; numbers are valid as long as it is open.
 * Numbers and offsets that are not from this image lead to an error or wrong data of the image,
 * never an access outside of it.
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
 * Why the last failed call of this thread failed: one line, never NULL. Valid until the next call
 * of this thread that fails, and until the thread ends.
 */
const char *erofast_error_text(void);

/*
 * Opens an image. `options` is NULL or a list "name=value,..." (a backslash keeps a comma) of
 *   offset=BYTES|auto       where the image begins in the file (0)
 *   device=PATH             an extra device of the image; once for each, in their order
 *   workers=inline|percpu|unbound   which threads decompress (inline: the calling one)
 *   hipri=auto|on|off       real-time priority of workers (off)
 *   sync_decompress=auto|on|off     whether a reader decompresses beside the workers (auto)
 *   reserved_pages=N        pages of 4 KiB kept ready for buffers (0)
 *   prefill                 fill them when the image is opened
 *   cache=SIZE              decoded data to keep, with K, M or G (8M)
 *   verity.roothash=HEX, verity.roothashfile=PATH, verity.hashdevice=PATH,
 *   verity.hashoffset=BYTES verify every block that is read
 * On success *image is the image; on failure it is NULL. Returns 0 or a negative errno.
 */
int erofast_open(const char *path, const char *options, struct erofast **image);

/*
 * The same for a file or block device that is open for reading. The descriptor is duplicated: the
 * caller keeps its own, whose position does not matter and does not change.
 */
int erofast_open_fd(int fd, const char *options, struct erofast **image);

/* Closes an image and frees all that belongs to it; NULL is ignored. */
void erofast_close(struct erofast *image);

/* The nid of the root directory; 0 for NULL. */
uint64_t erofast_root(const struct erofast *image);

/* For erofast_lookup: the last component is not followed if it is a symlink. */
#define EROFAST_NOFOLLOW 1u

/*
 * Looks up a path from the root of the image, with or without a leading slash. Symlinks are
 * followed inside of the image and `..` stops at its root. Returns 0 or a negative errno.
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
 * Reads from byte `offset` of a file, directory or symlink. Returns the number of bytes, less than
 * `size` only at the end of the file and 0 from there on, or a negative errno; then the content of
 * the buffer is undefined.
 */
int64_t erofast_read_at(const struct erofast *image, uint64_t nid, void *buffer, size_t size,
                        uint64_t offset);

/* An entry of a directory. */
struct erofast_dirent {
    uint64_t nid;
    uint64_t next;       /* position behind the entry, for erofast_readdir */
    const char *name;    /* ends with NUL; valid until the callback returns */
    size_t name_length;  /* bytes, without the NUL */
    uint32_t type;       /* DT_REG, DT_DIR, ... of <dirent.h>; DT_UNKNOWN for an unknown one */
    uint32_t padding;    /* 0 */
};

/*
 * Called for each entry; goes on while it returns 0. It may use the image, to read files and list
 * directories of any size. It must return: no longjmp, no exception.
 */
typedef int (*erofast_dirent_fn)(const struct erofast_dirent *entry, void *context);

/*
 * Calls `each` with `context` for the entries of a directory, `.` and `..` among them as stored,
 * in the order of the image, from `position` (0: the beginning) on. Returns 0 at the end, what
 * `each` returned if that was not 0, or a negative errno. Broken entries are left out; the others
 * are all passed, and then the call fails with -EUCLEAN.
 */
int erofast_readdir(const struct erofast *image, uint64_t nid, uint64_t position,
                    erofast_dirent_fn each, void *context);

/*
 * The three calls below return the number of bytes of the whole result, or a negative errno.
 * With `size` 0 nothing is written; a buffer that is too small is -ERANGE.
 */

/* The target of a symlink, without a NUL behind it. */
int64_t erofast_readlink(const struct erofast *image, uint64_t nid, char *buffer, size_t size);

/* The names of all extended attributes, whole (user.name), with a NUL behind each. */
int64_t erofast_listxattr(const struct erofast *image, uint64_t nid, char *buffer, size_t size);

/* The value of one extended attribute; -ENODATA if there is no such attribute. */
int64_t erofast_getxattr(const struct erofast *image, uint64_t nid, const char *name,
                         void *buffer, size_t size);

/* Where the bytes of an extent are. */
enum erofast_extent_kind {
    EROFAST_HOLE = 0,       /* nowhere: zeros */
    EROFAST_PLAIN = 1,      /* plain bytes at `physical` of `device` */
    EROFAST_METADATA = 2,   /* plain bytes among the metadata: an inline tail */
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

/* `physical` counts inside of the decoded metabox, not on the device. */
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
 * The extent that holds byte `offset` of a file. Returns 1, 0 at and behind the end of the file, or
 * a negative errno. The next extent begins at logical + length.
 */
int erofast_extent(const struct erofast *image, uint64_t nid, uint64_t offset,
                   struct erofast_extent *extent);

#ifdef __cplusplus
}
#endif

#endif
