/*
 * Checks what erofast.h guarantees besides the content of images: promises IMAGE OPTIONS.
 * Aborts at the first violation.
 */
#define _GNU_SOURCE
#include <erofast.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: not %s: %s\n", __LINE__, #what, erofast_error_text()); \
            abort(); \
        } \
    } while (0)

static struct erofast *image;

static int count(const struct erofast_dirent *entry, void *context)
{
    MUST(entry->name[entry->name_length] == 0);
    ++*(unsigned *)context;
    return 0;
}

static int first(const struct erofast_dirent *entry, void *context)
{
    *(uint64_t *)context = entry->next;
    return 42;
}

static void *elsewhere(void *unused)
{
    char buffer[100];
    MUST(strcmp(erofast_error_text(), "") == 0);
    MUST(erofast_read_at(image, erofast_root(image), buffer, sizeof buffer, 0) > 0);
    return unused;
}

static void null_pointers(void)
{
    struct erofast_stat stat;
    uint64_t nid;
    char byte;
    MUST(erofast_open(NULL, NULL, &image) == -EINVAL && image == NULL);
    MUST(strcmp(erofast_error_text(), "path is NULL") == 0);
    MUST(erofast_open("/", NULL, NULL) == -EINVAL);
    MUST(erofast_root(NULL) == 0);
    MUST(erofast_lookup(NULL, "/", 0, &nid) == -EINVAL);
    MUST(erofast_stat(NULL, 0, &stat) == -EINVAL);
    MUST(erofast_read_at(NULL, 0, &byte, 1, 0) == -EINVAL);
    MUST(erofast_readdir(NULL, 0, 0, count, NULL) == -EINVAL);
    MUST(erofast_extent(NULL, 0, 0, NULL) == -EINVAL);
    erofast_close(NULL);
}

static void failing_opens(const char *path)
{
    MUST(erofast_open("/there/is/none", NULL, &image) == -ENOENT);
    MUST(strstr(erofast_error_text(), "/there/is/none"));
    MUST(erofast_open("/dev/null", NULL, &image) < 0);
    MUST(erofast_open(path, "allow_other", &image) == -EINVAL);
    MUST(strcmp(erofast_error_text(), "unknown option allow_other") == 0);
    MUST(erofast_open_fd(-1, NULL, &image) == -EBADF);
    MUST(erofast_open_fd(1000000, NULL, &image) == -EBADF);
    MUST(image == NULL);
}

static void wrong_arguments(void)
{
    uint64_t root = erofast_root(image), nid, next = 0;
    unsigned entries = 0, rest = 0;
    char buffer[4096];
    MUST(erofast_lookup(image, "/no/such", 0, &nid) == -ENOENT);
    MUST(erofast_lookup(image, "/", 8, &nid) == -EINVAL);
    MUST(erofast_lookup(image, "/", 0, NULL) == -EINVAL);
    MUST(erofast_lookup(image, "../..", 0, &nid) == 0 && nid == root);
    MUST(erofast_lookup_at(image, root, "none", &nid) == -ENOENT);
    MUST(erofast_getxattr(image, root, "user.none", NULL, 0) == -ENODATA);
    MUST(erofast_readlink(image, root, buffer, sizeof buffer) == -EINVAL);
    MUST(erofast_read_at(image, root, NULL, 1, 0) == -EINVAL);
    MUST(erofast_read_at(image, root, NULL, 0, 0) == 0);
    MUST(erofast_read_at(image, root, buffer, (size_t)-1, 0) == -EINVAL);
    MUST(erofast_read_at(image, root, buffer, sizeof buffer, UINT64_MAX) == 0);
    MUST(erofast_stat(image, UINT64_MAX >> 1, &(struct erofast_stat){0}) < 0);
    MUST(erofast_readdir(image, root, 0, NULL, NULL) == -EINVAL);
    MUST(erofast_readdir(image, root, 0, count, &entries) == 0);
    MUST(erofast_readdir(image, root, 0, first, &next) == 42);
    MUST(erofast_readdir(image, root, next, count, &rest) == 0 && rest + 1 == entries);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    MUST(argc == 3 && erofast_version()[0]);
    MUST(strcmp(erofast_error_text(), "") == 0);
    null_pointers();
    failing_opens(argv[1]);
    MUST(erofast_open(argv[1], argv[2], &image) == 0);
    wrong_arguments();
    MUST(pthread_create(&thread, NULL, elsewhere, NULL) == 0);
    MUST(pthread_join(thread, NULL) == 0);
    erofast_close(image);
    puts("kept");
    return 0;
}
