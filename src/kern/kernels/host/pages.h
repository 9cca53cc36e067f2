/* The paged pool of keys and values: page p starts at element p * page_stride, and holds, for one layer,
 * [keys or values][kv_heads][PAGE][dim] in bf16. The pool's address is already that of the layer. */
#ifndef PAGES_H
#define PAGES_H
#include <stdint.h>

enum { PAGE = 16 };

typedef struct {
    int64_t kv_heads, dim, page_stride;
} pool_shape;

/* Element at which the key of `slot` in `head` starts. */
static inline int64_t key_at(const pool_shape *pool, int64_t page, int64_t head, int64_t slot) {
    return page * pool->page_stride + (head * PAGE + slot) * pool->dim;
}

/* How far the value lies behind its key, in elements. */
static inline int64_t value_offset(const pool_shape *pool) { return pool->kv_heads * PAGE * pool->dim; }

#endif
