/* gcc's unwinder finds a program's tables with a function that glibc has and musl lacks. Static
 * programs for musl that are linked with that unwinder (scripts/build-release) get it from this file.
 * This file is compiled with glibc's headers, which have the structure that the unwinder was
 * compiled with. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

struct search {
    uintptr_t address;
    struct dl_find_object *found;
};

/* Fills in the result if this object has the address; returning 1 ends the search. */
static int match_object(struct dl_phdr_info *object, size_t size, void *data) {
    struct search *search = data;
    uintptr_t start = 0, end = 0;
    void *tables = NULL;
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        uintptr_t first = object->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && search->address - first < part->p_memsz) {
            start = first;
            end = first + part->p_memsz;
        } else if (part->p_type == DLFO_EH_SEGMENT_TYPE) {
            tables = (void *)first;
        }
    }
    if (start == end || tables == NULL)
        return 0;
    memset(search->found, 0, sizeof *search->found);
    search->found->dlfo_map_start = (void *)start;
    search->found->dlfo_map_end = (void *)end;
    search->found->dlfo_eh_frame = tables;
    return 1;
}

int _dl_find_object(void *address, struct dl_find_object *found) {
    struct search search = {(uintptr_t)address, found};
    return dl_iterate_phdr(match_object, &search) ? 0 : -1;
}
