/* Runs host kernels in an emulated process for kernels/emulated.py. A request on stdin: the buffers, then the calls in
 * their order. The answer on stdout: the buffers as the calls left them. Numbers are 64-bit words. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kern_host.h"

enum { MAX_BUFFERS = 64, MAX_PARAMS = 64, MAX_NAME = 4096 };

typedef void (*entry)(const kern_launch *launch, void *const *params);

typedef struct {
    void *mapping;
    size_t mapped, size;
    unsigned char *data;
} buffer;

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void receive(void *to, size_t size) {
    if (size && fread(to, size, 1, stdin) != 1) fail("the request is cut short");
}

static uint64_t word(void) {
    uint64_t value;
    receive(&value, sizeof value);
    return value;
}

static const char *name(char *to) {
    uint64_t size = word();
    if (size >= MAX_NAME) fail("a name is too long");
    receive(to, size);
    to[size] = 0;
    return to;
}

/* Memory that no page follows, so that a kernel that goes beyond it is ended by a signal. */
static buffer allocate(size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), used = (size + 15) / 16 * 16;
    size_t whole = (used + page - 1) / page * page;
    buffer b = {.mapped = whole + page, .size = size};
    b.mapping = mmap(NULL, b.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.mapping == MAP_FAILED || mprotect((char *)b.mapping + whole, page, PROT_NONE)) fail("no memory");
    b.data = (unsigned char *)b.mapping + whole - used;
    return b;
}

static entry find(const char *module, const char *symbol) {
    void *loaded = dlopen(module, RTLD_NOW | RTLD_LOCAL), *found = loaded ? dlsym(loaded, symbol) : NULL;
    if (!found) fail(dlerror());
    return (entry)found;
}

static void call(const buffer *buffers) {
    char module[MAX_NAME], symbol[MAX_NAME];
    kern_launch launch;
    uint64_t values[MAX_PARAMS];
    void *params[MAX_PARAMS];
    entry run = find(name(module), name(symbol));
    receive(&launch, sizeof launch);
    uint64_t count = word();
    if (count > MAX_PARAMS) fail("too many parameters");
    for (uint64_t i = 0; i < count; i++) {
        uint64_t place = word(), value = word(); /* 0: a number; else a buffer's index + 1, and bytes into it */
        values[i] = place ? (uint64_t)(uintptr_t)(buffers[place - 1].data + value) : value;
        params[i] = &values[i];
    }
    run(&launch, params);
}

int main(void) {
    for (int first = getc(stdin); first != EOF; first = getc(stdin)) {
        ungetc(first, stdin);
        buffer buffers[MAX_BUFFERS];
        uint64_t count = word();
        if (count > MAX_BUFFERS) fail("too many buffers");
        for (uint64_t i = 0; i < count; i++) {
            buffers[i] = allocate(word());
            receive(buffers[i].data, buffers[i].size);
        }
        for (uint64_t calls = word(); calls > 0; calls--) call(buffers);
        for (uint64_t i = 0; i < count; i++) {
            fwrite(buffers[i].data, 1, buffers[i].size, stdout);
            munmap(buffers[i].mapping, buffers[i].mapped);
        }
        fflush(stdout);
    }
    return 0;
}
