/*
 * Walks an image in the shortest way: the callback that receives a name reads the file, or lists
 * the directory. walk IMAGE prints path, size, sum of the bytes and number of non-zero bytes.
 */
#define _GNU_SOURCE
#include <erofast.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PIECE (1 << 20)

static struct erofast *image;

static int fail(const char *path)
{
    fprintf(stderr, "%s: %s\n", path, erofast_error_text());
    return 1;
}

static int sum_up(const char *path, const struct erofast_stat *stat)
{
    static unsigned char piece[PIECE], zeros[PIECE];
    uint64_t sum = 0, offset = 0, filled = 0;
    int64_t count;

    while ((count = erofast_read_at(image, stat->nid, piece, PIECE, offset)) > 0) {
        offset += count;
        if (memcmp(piece, zeros, count) == 0)
            continue;
        for (int64_t i = 0; i < count; i++) {
            sum += piece[i];
            filled += piece[i] != 0;
        }
    }
    if (count < 0)
        return fail(path);
    printf("%s %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", path, offset, sum, filled);
    return 0;
}

static int visit(const struct erofast_dirent *entry, void *context)
{
    struct erofast_stat stat;
    char *path;
    int code = 0;

    if (strcmp(entry->name, ".") == 0 || strcmp(entry->name, "..") == 0)
        return 0;
    if (asprintf(&path, "%s/%s", (const char *)context, entry->name) < 0)
        abort();
    if (erofast_stat(image, entry->nid, &stat) < 0)
        code = fail(path);
    else if (S_ISREG(stat.mode))
        code = sum_up(path, &stat);
    else if (S_ISDIR(stat.mode) && (code = erofast_readdir(image, entry->nid, 0, visit, path)) < 0)
        code = fail(path);
    free(path);
    return code;
}

int main(int argc, char **argv)
{
    int code;

    if (argc != 2 || erofast_open(argv[1], NULL, &image) < 0)
        return fail(argc > 1 ? argv[1] : "usage: walk IMAGE");
    code = erofast_readdir(image, erofast_root(image), 0, visit, "");
    if (code < 0)
        fail("/");
    erofast_close(image);
    return code != 0;
}
