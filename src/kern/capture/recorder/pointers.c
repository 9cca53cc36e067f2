/* Which words are addresses, of what memory, and what lies behind those of the host. */
#include "pointers.h"

#include <string.h>

#include "driver.h"
#include "memory.h"

enum { PAGE = 4096, DATA_BYTES = 64 };

static const uint64_t LOWEST = 1u << 16, HIGHEST = UINT64_C(1) << 56; /* no mapping of a program lies outside */
static const char *const NAMES[] = {"", "device", "managed", "pinned", "host"};

/* The driver's answer; it leaves zeros for what it does not know. */
static struct location driver_location(uint64_t address) {
    uint64_t type = 0, managed = 0, base = 0, size = 0;
    CUpointer_attribute ids[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void *values[] = {&type, &managed, &base, &size};
    struct location location = {NOT_MEMORY, 0, 0};
    if (driver.PointerGetAttributes(4, ids, values, address) != CUDA_SUCCESS)
        return location;
    if ((managed & 0xff) != 0)
        location.memory = MANAGED;
    else if ((uint32_t)type == CU_MEMORYTYPE_DEVICE)
        location.memory = DEVICE;
    else if ((uint32_t)type == CU_MEMORYTYPE_HOST)
        location.memory = PINNED;
    location.base = base;
    location.size = size;
    return location;
}

static bool possible(uint64_t address) { return address >= LOWEST && address < HIGHEST; }

static bool readable(uint64_t address) {
    char byte;
    return memory_read(&byte, (const void *)(uintptr_t)address, 1);
}

struct location location_of(uint64_t address) {
    struct location location = {NOT_MEMORY, 0, 0};
    if (!possible(address))
        return location;
    location = driver_location(address);
    if (location.memory == NOT_MEMORY && readable(address) && memory_mapping(address, &location.base, &location.size))
        location.memory = HOST;
    return location;
}

bool is_host(enum memory memory) { return memory == HOST || memory == PINNED; }

size_t read_host(void *to, uint64_t address, struct location location, size_t size) {
    const void *from = (const void *)(uintptr_t)address;
    if (location.memory == PINNED) {
        uint64_t left = location.base + location.size - address;
        return memory_read_pinned(to, from, location.size && left < size ? (size_t)left : size);
    }
    if (location.memory != HOST)
        return 0;
    size_t in_page = PAGE - (size_t)(address % PAGE);
    if (memory_read(to, from, size))
        return size;
    return in_page < size && memory_read(to, from, in_page) ? in_page : 0;
}

static void put_pointer(struct pointers *pointers, uint64_t word, struct location location, long param, size_t at,
                        bool whole) {
    unsigned char data[DATA_BYTES];
    struct text *line = pointers->line;
    text_put(line, pointers->any ? ",{" : "{");
    pointers->any = true;
    if (param >= 0)
        text_format(line, "\"param\":%ld,", param);
    text_format(line, "\"at\":%zu,\"memory\":\"%s\",\"range\":[%llu,%llu]", at, NAMES[location.memory],
                (unsigned long long)location.base, (unsigned long long)location.size);
    size_t read = whole && is_host(location.memory) ? read_host(data, word, location, sizeof data) : 0;
    if (read) {
        text_put(line, ",\"data\":");
        text_hex(line, data, read);
    }
    text_put(line, "}");
}

void put_pointers(struct pointers *pointers, const unsigned char *bytes, size_t size, size_t offset, long param) {
    bool whole = param >= 0 && size == sizeof(uint64_t);
    for (size_t at = (8 - offset % 8) % 8; at + 8 <= size; at += 8) {
        uint64_t word;
        memcpy(&word, bytes + at, sizeof word);
        if (!possible(word))
            continue;
        struct location location = whole ? location_of(word) : driver_location(word);
        if (location.memory != NOT_MEMORY)
            put_pointer(pointers, word, location, param, at, whole);
        else if (!whole)
            pointers->host_words += readable(word);
    }
}
