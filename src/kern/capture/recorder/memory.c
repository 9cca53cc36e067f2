/* Reading the program's own memory at addresses that may be bad. */
#define _GNU_SOURCE
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PIECES = 64 }; /* on the stack, which may be a small one */

struct mapping {
    uint64_t start, end;
};

static struct {
    pthread_mutex_t lock;
    struct mapping *entries;
    size_t count, capacity;
} maps = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The kernel copies what it writes to a file from any mapping and says EFAULT where there is none. */
static bool read_through_file(void *to, const void *from, size_t size) {
    int file = memfd_create("kern", MFD_CLOEXEC);
    if (file < 0)
        return false;
    bool whole = pwrite(file, from, size, 0) == (ssize_t)size && pread(file, to, size, 0) == (ssize_t)size;
    close(file);
    return whole;
}

bool memory_read(void *to, const void *from, size_t size) {
    struct piece piece = {from, size};
    return memory_gather(to, &piece, 1);
}

bool memory_gather(void *to, const struct piece *pieces, size_t count) {
    char *at = to;
    for (size_t done = 0; done < count;) {
        struct iovec remote[PIECES];
        size_t taken = 0, size = 0;
        for (; taken < PIECES && done + taken < count; taken++) {
            remote[taken] = (struct iovec){(void *)pieces[done + taken].from, pieces[done + taken].size};
            size += pieces[done + taken].size;
        }
        struct iovec local = {at, size};
        ssize_t got = size ? process_vm_readv(getpid(), &local, 1, remote, taken, 0) : 0;
        if (got < 0 && (errno == EPERM || errno == ENOSYS)) {
            char *piece_at = at;
            for (size_t i = 0; i < taken; piece_at += remote[i++].iov_len)
                if (remote[i].iov_len && !read_through_file(piece_at, remote[i].iov_base, remote[i].iov_len))
                    return false;
        } else if (got != (ssize_t)size) {
            return false;
        }
        at += size;
        done += taken;
    }
    return true;
}

size_t memory_read_pinned(void *to, const void *from, size_t size) {
    return memory_read(to, from, size) || read_through_file(to, from, size) ? size : 0;
}

/* Read /proc/self/maps again. */
static void refresh(void) {
    maps.count = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    if (!file)
        return;
    char line[512];
    bool at_start = true;
    while (fgets(line, sizeof line, file)) {
        unsigned long long start, end;
        char access[5];
        bool whole = false;
        for (char *c = line; *c; c++)
            whole |= *c == '\n';
        if (at_start && sscanf(line, "%llx-%llx %4s", &start, &end, access) == 3 && access[0] == 'r') {
            if (maps.count == maps.capacity) {
                size_t capacity = maps.capacity ? 2 * maps.capacity : 1024;
                struct mapping *entries = realloc(maps.entries, capacity * sizeof *entries);
                if (!entries)
                    break;
                maps.entries = entries;
                maps.capacity = capacity;
            }
            maps.entries[maps.count++] = (struct mapping){start, end};
        }
        at_start = whole;
    }
    fclose(file);
}

static const struct mapping *find(uint64_t address) {
    size_t low = 0, high = maps.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (maps.entries[middle].end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < maps.count && maps.entries[low].start <= address ? &maps.entries[low] : NULL;
}

bool memory_mapping(uint64_t address, uint64_t *base, uint64_t *size) {
    pthread_mutex_lock(&maps.lock);
    const struct mapping *found = find(address);
    if (!found) {
        refresh();
        found = find(address);
    }
    if (found) {
        *base = found->start;
        *size = found->end - found->start;
    }
    pthread_mutex_unlock(&maps.lock);
    return found != NULL;
}
