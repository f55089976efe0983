/*
 * Reads images through the C library and prints their contents.
 *
 * reader IMAGE OPTIONS [IMAGE OPTIONS]...   trees
 * reader --null IMAGE OPTIONS...   trees without sums: writes contents to /dev/null, so that
 *                                  valgrind checks each byte without the cost of a hash
 * reader --range IMAGE OPTIONS PATH OFFSET LENGTH   the SHA-256 of a part of a file
 *
 * A tree is a line "image NAME", then for each inode the fields of `print_inode`, separated by
 * tabs; bytes are an x and hexadecimal digits. Errors are lines "error PATH ERRNO TEXT".
 */
#define _GNU_SOURCE
#include <erofast.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sha256.h"

/* Larger files are read by ranges. */
#define BIG (64u << 20)
#define EXTENTS_MAX 100000
#define DEPTH_MAX 200
#define INODES_MAX 20000

_Static_assert(sizeof(struct erofast_stat) == 64, "as the library has it");
_Static_assert(sizeof(struct erofast_extent) == 48, "as the library has it");

static struct erofast *image;
static unsigned inodes;
static int null = -1;

static void hex(const void *data, size_t size)
{
    putchar('x');
    for (size_t i = 0; i < size; i++)
        printf("%02x", ((const uint8_t *)data)[i]);
}

static void error(const char *path, long code)
{
    /* The line of an inode may have begun. */
    printf("\nerror\t");
    hex(path, strlen(path));
    printf("\t%ld\t%s\n", code, erofast_error_text());
}

typedef int64_t getter(uint64_t nid, const char *name, char *buffer, size_t size);

/* Allocates and returns the result of a call that reports its length; NULL after an error. */
static char *whole(const char *path, int64_t size, getter *get, uint64_t nid, const char *name)
{
    char *buffer;
    if (size < 0) {
        error(path, size);
        return NULL;
    }
    buffer = malloc(size + 1);
    if (size > 1 && get(nid, name, buffer, size - 1) != -ERANGE)
        abort();
    if (get(nid, name, buffer, size) != size)
        abort();
    return buffer;
}

static int64_t link_of(uint64_t nid, const char *name, char *buffer, size_t size)
{
    (void)name;
    return erofast_readlink(image, nid, buffer, size);
}

static int64_t names_of(uint64_t nid, const char *name, char *buffer, size_t size)
{
    (void)name;
    return erofast_listxattr(image, nid, buffer, size);
}

static int64_t value_of(uint64_t nid, const char *name, char *buffer, size_t size)
{
    return erofast_getxattr(image, nid, name, buffer, size);
}

static int print_xattrs(const char *path, uint64_t nid)
{
    int64_t size = names_of(nid, NULL, NULL, 0);
    char *names = whole(path, size, names_of, nid, NULL);
    if (!names)
        return -1;
    for (const char *name = names; name < names + size; name += strlen(name) + 1) {
        int64_t length = value_of(nid, name, NULL, 0);
        char *value = whole(path, length, value_of, nid, name);
        if (!value)
            break;
        hex(name, strlen(name));
        putchar('=');
        hex(value, length);
        putchar(',');
        free(value);
    }
    free(names);
    return 0;
}

/* Hashes a part of a file, in steps that are not aligned to anything. */
static int64_t sum(uint64_t nid, uint64_t offset, uint64_t length, struct sha256 *hash)
{
    static const size_t steps[] = {1 << 20, 4096, 131072, 70001, 1};
    uint8_t *buffer = malloc(1 << 20);
    int64_t count = 0;
    sha256_begin(hash);
    for (unsigned round = 0; length > 0; round++) {
        size_t step = steps[round % 5];
        count = erofast_read_at(image, nid, buffer, step < length ? step : length, offset);
        if (count <= 0)
            break;
        if (null < 0)
            sha256_add(hash, buffer, count);
        else if (write(null, buffer, count) != count)
            abort();
        offset += count;
        length -= count;
    }
    free(buffer);
    return count < 0 ? count : 0;
}

/* Checks that nothing of a hole is stored, and that its first and last bytes are zeros. */
static void check_hole(const struct erofast_stat *stat, const struct erofast_extent *extent)
{
    char ends[2] = {1, 1};
    if (extent->kind != EROFAST_HOLE)
        return;
    if (extent->stored != 0 ||
        erofast_read_at(image, stat->nid, ends, 1, extent->logical) != 1 ||
        erofast_read_at(image, stat->nid, ends + 1, 1, extent->logical + extent->length - 1) != 1 ||
        ends[0] != 0 || ends[1] != 0)
        abort();
}

/* Checks that extents cover the file from its beginning to its end, without gaps. */
static void check_extents(const char *path, const struct erofast_stat *stat)
{
    struct erofast_extent extent;
    uint64_t offset = 0;
    for (int i = 0; i < EXTENTS_MAX && offset < stat->size; i++) {
        int found = erofast_extent(image, stat->nid, offset, &extent);
        if (found < 0) {
            error(path, found);
            return;
        }
        if (found != 1 || extent.logical != offset || extent.length == 0 ||
            extent.length > stat->size - offset)
            abort();
        check_hole(stat, &extent);
        offset += extent.length;
    }
    if (offset >= stat->size && erofast_extent(image, stat->nid, stat->size, &extent) != 0)
        abort();
}

static void print_content(const char *path, const struct erofast_stat *stat)
{
    struct sha256 hash;
    int64_t code;
    if (S_ISLNK(stat->mode)) {
        int64_t size = link_of(stat->nid, NULL, NULL, 0);
        char *target = whole(path, size, link_of, stat->nid, NULL);
        if (target)
            hex(target, size);
        free(target);
    } else if (S_ISREG(stat->mode) && stat->size <= BIG) {
        code = sum(stat->nid, 0, stat->size, &hash);
        if (code < 0)
            error(path, code);
        else
            sha256_print(&hash);
    } else if (S_ISREG(stat->mode)) {
        code = sum(stat->nid, 0, 1 << 20, &hash);
        if (code == 0)
            code = sum(stat->nid, stat->size - 5000, 5000, &hash);
        if (code < 0)
            error(path, code);
        else
            putchar('-');
    } else {
        putchar('-');
    }
}

static void print_inode(const char *path, const struct erofast_stat *stat)
{
    printf("inode\t");
    hex(path, strlen(path));
    printf("\t%" PRIu64 "\t%o\t%u\t%u\t%" PRId64 "\t%u\t%u\t%" PRIu64 "\t%u\t%u\t", stat->nid,
           stat->mode, stat->uid, stat->gid, stat->mtime, stat->mtime_nsec, stat->nlink, stat->size,
           stat->rdev_major, stat->rdev_minor);
    if (print_xattrs(path, stat->nid) == 0)
        putchar('\t');
    print_content(path, stat);
    putchar('\n');
}

struct entries {
    const char *path;
    uint64_t directory;
    int depth;
    uint64_t *nids;
    char **names;
    size_t count;
};

static int add(const struct erofast_dirent *entry, void *context)
{
    struct entries *all = context;
    if (strlen(entry->name) != entry->name_length)
        abort();
    if (all->count == INODES_MAX)
        return 1;
    all->nids = realloc(all->nids, (all->count + 1) * sizeof *all->nids);
    all->names = realloc(all->names, (all->count + 1) * sizeof *all->names);
    all->nids[all->count] = entry->nid;
    all->names[all->count++] = strdup(entry->name);
    return 0;
}

static void tree(const char *path, uint64_t nid, int depth);

static void visit(struct entries *all, size_t index)
{
    const char *name = all->names[index];
    uint64_t found = 0;
    char *path;
    int code = erofast_lookup_at(image, all->directory, name, &found);
    if (code < 0 || found != all->nids[index])
        error(all->path, code < 0 ? code : -EUCLEAN);
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return;
    if (asprintf(&path, "%s%s%s", all->path, *all->path ? "/" : "", name) < 0)
        abort();
    tree(path, all->nids[index], all->depth + 1);
    free(path);
}

static void directory(const char *path, uint64_t nid, int depth)
{
    struct entries all = {.path = path, .directory = nid, .depth = depth};
    int code = erofast_readdir(image, nid, 0, add, &all);
    if (code < 0)
        error(path, code);
    for (size_t i = 0; i < all.count; i++) {
        visit(&all, i);
        free(all.names[i]);
    }
    free(all.names);
    free(all.nids);
}

static void tree(const char *path, uint64_t nid, int depth)
{
    struct erofast_stat stat;
    int code = erofast_stat(image, nid, &stat);
    if (code < 0) {
        error(path, code);
        return;
    }
    if (depth > DEPTH_MAX || ++inodes > INODES_MAX)
        return;
    print_inode(path, &stat);
    if (S_ISREG(stat.mode))
        check_extents(path, &stat);
    if (S_ISDIR(stat.mode))
        directory(path, nid, depth);
}

/* Opens the same image by a descriptor, whose position must not change. */
static void by_descriptor(const char *name, const char *options)
{
    struct erofast *other = NULL;
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    /* A URL has no descriptor. */
    if (fd < 0 && strstr(name, "://") != NULL)
        return;
    lseek(fd, 7, SEEK_SET);
    if (erofast_open_fd(fd, options, &other) != 0 || erofast_root(other) != erofast_root(image))
        abort();
    erofast_close(other);
    if (lseek(fd, 0, SEEK_CUR) != 7)
        abort();
    close(fd);
}

static int range(char **argv)
{
    struct sha256 hash;
    uint64_t nid;
    int64_t code = erofast_open(argv[2], argv[3], &image);
    if (code == 0)
        code = erofast_lookup(image, argv[4], EROFAST_NOFOLLOW, &nid);
    if (code == 0)
        code = sum(nid, strtoull(argv[5], NULL, 10), strtoull(argv[6], NULL, 10), &hash);
    if (code < 0) {
        fprintf(stderr, "%s\n", erofast_error_text());
        return 1;
    }
    sha256_print(&hash);
    putchar('\n');
    erofast_close(image);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 7 && strcmp(argv[1], "--range") == 0)
        return range(argv);
    if (argc > 1 && strcmp(argv[1], "--null") == 0) {
        null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        argc--;
        argv++;
    }
    for (int i = 1; i + 1 < argc; i += 2) {
        int code = erofast_open(argv[i], argv[i + 1], &image);
        printf("image\t%s\n", argv[i]);
        inodes = 0;
        if (code == 0) {
            by_descriptor(argv[i], argv[i + 1]);
            tree("", erofast_root(image), 0);
        } else {
            error("", code);
        }
        erofast_close(image);
    }
    return 0;
}
