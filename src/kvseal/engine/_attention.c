/* Paged attention without a gather: scores and sums are computed from the pages where they lie.
 *
 *     page      [layers, keys then values]
 *     keys      [kv_heads, word, token]      a word is 4 bytes: one float32, or two neighbouring bfloat16
 *     values    [kv_heads, token, word]
 *
 * So one vector holds one word of the keys of consecutive tokens, each lane gathers the score of its own token,
 * and nothing is ever summed across lanes. A bfloat16 becomes a float32 by a shift (the even ones of a word) or a
 * mask (the odd ones); sums are float32 throughout.
 *
 *     unit      up to UNIT tokens of a sequence, cut into tiles of W tokens at most, none across pages
 *     row       one query token and one query head; the rows that share a key head are computed together, in
 *               blocks whose sums fit the registers
 *     item      what one thread takes at once: some rows of one sequence, for one or all key heads
 *
 * Softmax runs along (a row keeps its largest score and rescales its sums). Loads are cut to the tokens that exist
 * by masks, so no byte beyond a sequence's end is read: it may hold anything, and 0 x NaN is NaN (G6, G8).
 *
 * Levels are chosen at run time, so the build needs no -march. With the GIL released, everything used is a private
 * copy or memory that the caller may not change during the pass.
 */

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the two bfloat16 of a word are told apart by their place in it"
#endif

#define UNIT 128     /* tokens whose scores are kept at once: their keys and values fit the second-level cache */
#define WIDEST 16    /* floats of the widest vector */
#define TILE_ROWS 96 /* query rows of an item of a chunk */

typedef struct {
    int64_t layers, kv_heads, head_dim, page_size;
    int64_t words; /* of one key */
    int half;      /* bfloat16 */
    size_t head_bytes, block_bytes, layer_bytes, page_bytes;
} Shape;

typedef struct {
    const char *key;   /* word 0 of the first token, head 0 */
    const char *value; /* the first token, head 0 */
    int64_t first;     /* position of the first token */
    int lanes;         /* tokens */
} Tile;

/* Query rows row .. row + n of one key head over one unit. */
typedef struct {
    const Tile *tile;
    int tiles, unit_tiles;
    size_t head; /* bytes from head 0 to this head, of keys and of values alike */
    int64_t position, row, group;
    const uint32_t *query;
    float scale;
    float *scores, *peak, *total, *sums;
    size_t sums_stride;
    const char *const *next;
} Block;

static inline float
as_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#define GLUE_(name, level) name##_##level
#define GLUE(name, level) GLUE_(name, level)
#define FN(name) GLUE(name, LEVEL)

/* ---- generic: vectors of 16 bytes, which every 64-bit processor has; the compiler chooses instructions ---- */

#define LEVEL generic
#define W 4
#define MOST_ROWS 3
#define HAVE_DOT 0
#define LANES int
#define LANE_NUMBERS ((floats_generic){0, 1, 2, 3})
#define CODE __attribute__((always_inline)) static inline
#define ENTRY static
#include "_attention_vectors.h"
CODE int lanes_of_generic(int n) { return n; }
CODE floats_generic
load_lanes_generic(const void *at, int lanes)
{
    floats_generic v = {0};
    if (lanes == W)
        memcpy(&v, at, sizeof v);
    else
        for (int i = 0; i < lanes; i++)
            memcpy((char *)&v + 4 * i, (const char *)at + 4 * i, 4);
    return v;
}
CODE floats_generic fma_generic(floats_generic a, floats_generic b, floats_generic c) { return a * b + c; }
CODE floats_generic
larger_generic(floats_generic c, floats_generic x)
{
    words_generic take = (words_generic)(c > x);
    return (floats_generic)(((words_generic)c & take) | ((words_generic)x & ~take));
}
CODE float
largest_generic(floats_generic v)
{
    float most = v[0];
    for (int i = 1; i < W; i++)
        most = most > v[i] ? most : v[i];
    return most;
}
CODE floats_generic
dot_generic(floats_generic acc, floats_generic pairs, uint32_t word)
{
    (void)pairs, (void)word;
    return acc;
}
#include "_attention_kernel.h"
#undef LEVEL
#undef W
#undef MOST_ROWS
#undef LANES
#undef LANE_NUMBERS
#undef CODE
#undef ENTRY

#if defined(__x86_64__)

#define LEVEL avx2
#define W 8
#define MOST_ROWS 3
#define LANES __m256i
#define LANE_NUMBERS ((floats_avx2){0, 1, 2, 3, 4, 5, 6, 7})
#define CODE __attribute__((always_inline, target("avx2,fma"))) static inline
#define ENTRY __attribute__((target("avx2,fma"))) static
#include "_attention_vectors.h"
CODE __m256i
lanes_of_avx2(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
CODE floats_avx2 load_lanes_avx2(const void *at, __m256i lanes) { return _mm256_maskload_ps(at, lanes); }
CODE floats_avx2 fma_avx2(floats_avx2 a, floats_avx2 b, floats_avx2 c) { return _mm256_fmadd_ps(a, b, c); }
CODE floats_avx2 larger_avx2(floats_avx2 c, floats_avx2 x) { return _mm256_max_ps(c, x); }
CODE float
largest_avx2(floats_avx2 v)
{
    __m128 most = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    most = _mm_max_ps(most, _mm_movehl_ps(most, most));
    return _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
}
CODE floats_avx2
dot_avx2(floats_avx2 acc, floats_avx2 pairs, uint32_t word)
{
    (void)pairs, (void)word;
    return acc;
}
#include "_attention_kernel.h"
#undef LEVEL
#undef W
#undef MOST_ROWS
#undef LANES
#undef LANE_NUMBERS
#undef CODE
#undef ENTRY

#define W 16
#define MOST_ROWS 6
#define LANES __mmask16
#define AVX512 "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"
#define AVX512_OPERATIONS \
    CODE __mmask16 FN(lanes_of)(int n) { return (__mmask16)((1u << n) - 1); } \
    CODE FN(floats) FN(load_lanes)(const void *at, __mmask16 lanes) { return _mm512_maskz_loadu_ps(lanes, at); } \
    CODE FN(floats) FN(fma)(FN(floats) a, FN(floats) b, FN(floats) c) { return _mm512_fmadd_ps(a, b, c); } \
    CODE FN(floats) FN(larger)(FN(floats) c, FN(floats) x) { return _mm512_max_ps(c, x); } \
    CODE float FN(largest)(FN(floats) v) { return _mm512_reduce_max_ps(v); }

#define LEVEL avx512
#define LANE_NUMBERS ((FN(floats)){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
#define CODE __attribute__((always_inline, target(AVX512))) static inline
#define ENTRY __attribute__((target(AVX512))) static
#include "_attention_vectors.h"
AVX512_OPERATIONS
CODE floats_avx512
dot_avx512(floats_avx512 acc, floats_avx512 pairs, uint32_t word)
{
    (void)pairs, (void)word;
    return acc;
}
#include "_attention_kernel.h"
#undef LEVEL
#undef CODE
#undef ENTRY
#undef HAVE_DOT

#define LEVEL avx512bf16
#define HAVE_DOT 1
#define CODE __attribute__((always_inline, target(AVX512 ",avx512bf16"))) static inline
#define ENTRY __attribute__((target(AVX512 ",avx512bf16"))) static
#include "_attention_vectors.h"
AVX512_OPERATIONS
CODE floats_avx512bf16
dot_avx512bf16(floats_avx512bf16 acc, floats_avx512bf16 pairs, uint32_t word)
{
    return _mm512_dpbf16_ps(acc, (__m512bh)(__m512)pairs, (__m512bh)_mm512_set1_epi32((int)word));
}
#include "_attention_kernel.h"
#undef LEVEL
#undef W
#undef MOST_ROWS
#undef LANES
#undef LANE_NUMBERS
#undef CODE
#undef ENTRY
#undef HAVE_DOT
#endif

/* ---- one item, for whatever level ---- */

typedef struct {
    const char *name;
    int width, most_rows, dot;
    void (*block)(int rows, int half, int ahead, const Block *block, const Shape *shape);
    void (*finish)(const Shape *shape, const float *sums, const float *total, char *out);
} Level;

/* Best first. */
static const Level LEVELS[] = {
#if defined(__x86_64__)
    {"avx512bf16", 16, 6, 1, attend_block_avx512bf16, finish_row_avx512bf16},
    {"avx512", 16, 6, 0, attend_block_avx512, finish_row_avx512},
    {"avx2", 8, 3, 0, attend_block_avx2, finish_row_avx2},
#endif
    {"generic", 4, 3, 0, attend_block_generic, finish_row_generic},
};
#define LEVEL_COUNT ((int)(sizeof LEVELS / sizeof LEVELS[0]))

static int
level_runs_here(const Level *level)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (level->width == 8)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (level->width == 16) {
        int wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
        return wide && (!level->dot || __builtin_cpu_supports("avx512bf16"));
    }
#endif
    return level->width == 4;
}

/* Numbers of a caller's tensor [heads, rows, head_dim]; strides in bytes, the last dimension is dense. */
typedef struct {
    char *base;
    int64_t head, row;
} Rows;

typedef struct {
    int64_t sequences;
    int64_t *bounds; /* [sequences + 1] packed rows */
    int64_t *ends;   /* [sequences] tokens after the pass */
    int64_t *firsts; /* [sequences + 1] places in pages */
    int64_t *pages;
} Batch;

typedef struct {
    int64_t sequence, first_row, last_row, first_head, last_head;
} Item;

typedef struct {
    const Shape *shape;
    const Level *level;
    const Batch *batch;
    char *layer; /* of page 0 */
    Rows query, key, value;
    char *out; /* [rows, heads, head_dim], dense */
    int64_t heads, group;
    float scale;
    const Item *items;
    int64_t item_count;
    size_t scratch_bytes;
    atomic_llong next_item;
} Pass;

static int64_t
smaller_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Cut `bytes` off the scratch, in lines of the cache. With base NULL it only counts. */
static void *
cut(char *base, size_t *used, size_t bytes)
{
    void *at = base == NULL ? NULL : base + *used;
    *used += (bytes + 63) & ~(size_t)63;
    return at;
}

typedef struct {
    Tile *tiles;
    uint32_t *queries;
    float *scores, *peaks, *totals, *sums;
    size_t sums_stride, query_words; /* of one row */
} Room;

static size_t
lay_out(const Pass *pass, const Item *item, char *base, Room *room)
{
    const Shape *shape = pass->shape;
    const size_t rows = (size_t)((item->last_row - item->first_row) * pass->group);
    const size_t all = rows * (size_t)(item->last_head - item->first_head);
    const size_t width = (size_t)pass->level->width, page = (size_t)shape->page_size;
    const size_t pages = (size_t)(pass->batch->firsts[item->sequence + 1] - pass->batch->firsts[item->sequence]);
    const size_t per_row = (size_t)shape->words;
    size_t used = 0;
    room->query_words = per_row * (shape->half && !pass->level->dot ? 2 : 1);
    room->sums_stride = (per_row + width - 1) / width * width * (shape->half ? 2 : 1);
    room->tiles = cut(base, &used, (pages * ((page + width - 1) / width) + 1) * sizeof(Tile));
    room->queries = cut(base, &used, all * room->query_words * 4);
    room->scores = cut(base, &used, (size_t)pass->level->most_rows * UNIT * 4);
    room->peaks = cut(base, &used, all * 4);
    room->totals = cut(base, &used, all * WIDEST * 4);
    room->sums = cut(base, &used, all * room->sums_stride * 4);
    return used;
}

static int64_t
cut_tiles(const Pass *pass, int64_t sequence, int64_t tokens, Tile *tiles)
{
    const Shape *shape = pass->shape;
    const int64_t *pages = pass->batch->pages + pass->batch->firsts[sequence];
    const int64_t width = pass->level->width;
    const size_t row_bytes = (size_t)shape->words * 4;
    int64_t count = 0;
    for (int64_t start = 0; start < tokens; start += shape->page_size) {
        const char *page = pass->layer + (size_t)pages[start / shape->page_size] * shape->page_bytes;
        int64_t held = smaller_of(shape->page_size, tokens - start);
        for (int64_t at = 0; at < held; at += width)
            tiles[count++] = (Tile){page + (size_t)at * 4, page + shape->block_bytes + (size_t)at * row_bytes,
                                    start + at, (int)smaller_of(width, held - at)};
    }
    /* Tiles are scored in pairs; this one has no token, and no byte of it is read. */
    tiles[count] = tiles[count - 1];
    tiles[count].lanes = 0;
    return count;
}

/* Where the values of a sequence's first tiles lie; at most `most` tiles. */
static int64_t
first_tiles(const Pass *pass, int64_t sequence, Tile *tiles, int64_t most)
{
    const Shape *shape = pass->shape;
    const int64_t *pages = pass->batch->pages + pass->batch->firsts[sequence];
    const int64_t width = pass->level->width, per_page = (shape->page_size + width - 1) / width;
    const int64_t held = pass->batch->firsts[sequence + 1] - pass->batch->firsts[sequence];
    int64_t count = 0;
    for (; count < most && count / per_page < held; count++)
        tiles[count].value = pass->layer + (size_t)pages[count / per_page] * shape->page_bytes + shape->block_bytes +
                             (size_t)(count % per_page * width * shape->words * 4);
    return count;
}

/* Word by word the rows of a block next to each other, so that a word of the keys meets them in one walk. */
static void
pack_queries(const Pass *pass, const Item *item, int64_t head, int64_t row, int rows, uint32_t *to)
{
    const int split = pass->shape->half && !pass->level->dot;
    const char *from[8];
    for (int r = 0; r < rows; r++)
        from[r] = pass->query.base + (item->first_row + (row + r) / pass->group) * pass->query.row +
                  (head * pass->group + (row + r) % pass->group) * pass->query.head;
    for (int64_t word = 0; word < pass->shape->words; word++) {
        for (int r = 0; r < rows; r++) {
            uint32_t value;
            memcpy(&value, from[r] + word * 4, 4);
            *to++ = split ? value << 16 : value;
            if (split)
                *to++ = value & 0xffff0000u;
        }
    }
}

/* What is fetched while tile i of this unit's keys, then of its values, is worked on: the next unit, in the order of
 * memory and not of use. A page's share of a layer is one run of bytes, and only long runs are fetched by the
 * processor on its own; what software asks for is limited to its few miss buffers. */
static void
look_ahead(const Pass *pass, const Item *item, const Tile *after, int after_count, int64_t head, int here,
           const char **next)
{
    const size_t head_bytes = pass->shape->head_bytes;
    const int64_t heads = item->last_head - item->first_head, runs = 2 * heads;
    for (int i = 0; i < 2 * here; i++) {
        int64_t at = (head - item->first_head) * 2 * here + i, run = at % runs;
        if (after_count == 0)
            next[i] = (const char *)next; /* near, so it costs nothing */
        else if (at / runs >= after_count)
            next[i] = next[0];
        else
            next[i] = after[at / runs].value + (size_t)item->first_head * head_bytes +
                      (run < heads ? (size_t)run * head_bytes - pass->shape->block_bytes
                                   : (size_t)(run - heads) * head_bytes);
    }
    next[2 * here] = next[2 * here - 1];
}

static void
attend_item(const Pass *pass, const Item *item, const Item *following, char *scratch)
{
    const Shape *shape = pass->shape;
    const Level *level = pass->level;
    const int64_t group = pass->group, rows = (item->last_row - item->first_row) * group;
    const int64_t position =
        pass->batch->ends[item->sequence] - (pass->batch->bounds[item->sequence + 1] - item->first_row);
    const int64_t blocks = (rows + level->most_rows - 1) / level->most_rows;
    const int most = UNIT / level->width;
    const char *next[2 * UNIT / 4 + 1];
    Room room;
    lay_out(pass, item, scratch, &room);
    const int64_t count =
        cut_tiles(pass, item->sequence, position + item->last_row - item->first_row, room.tiles);

    const int64_t all = rows * (item->last_head - item->first_head);
    for (int64_t i = 0; i < all; i++)
        room.peaks[i] = -__builtin_inff();
    memset(room.totals, 0, (size_t)all * WIDEST * 4);
    memset(room.sums, 0, (size_t)all * room.sums_stride * 4);
    for (int64_t head = item->first_head; head < item->last_head; head++)
        for (int64_t b = 0; b < blocks; b++) {
            int64_t row = rows * b / blocks, state = (head - item->first_head) * rows + row;
            pack_queries(pass, item, head, row, (int)(rows * (b + 1) / blocks - row),
                         room.queries + (size_t)state * room.query_words);
        }

    /* Units of like size, so that the fetching of one has the time of another. */
    const int64_t units = (count + most - 1) / most, unit = (count + units - 1) / units;
    Tile beyond[UNIT / 4];
    for (int64_t start = 0; start < count; start += unit) {
        const Tile *tiles = room.tiles + start, *after = tiles + unit;
        const int here = (int)smaller_of(unit, count - start);
        int64_t after_count = smaller_of(unit, count - start - here);
        if (after_count <= 0) {
            after = beyond;
            after_count = following == NULL ? 0 : first_tiles(pass, following->sequence, beyond, most);
        }
        for (int64_t head = item->first_head; head < item->last_head; head++) {
            const size_t offset = (size_t)head * shape->head_bytes;
            look_ahead(pass, item, after, (int)after_count, head, here, next);
            for (int64_t b = 0; b < blocks; b++) {
                const int64_t row = rows * b / blocks, end = rows * (b + 1) / blocks;
                const int64_t state = (head - item->first_head) * rows + row;
                const int64_t limit = position + (end - 1) / group + 1;
                int seen = here;
                while (seen > 0 && tiles[seen - 1].first >= limit)
                    seen--;
                if (seen == 0)
                    continue;
                const Block block = {
                    .tile = tiles, .tiles = seen, .unit_tiles = here, .head = offset, .position = position,
                    .row = row, .group = group, .query = room.queries + (size_t)state * room.query_words,
                    .scale = pass->scale, .scores = room.scores, .peak = room.peaks + state,
                    .total = room.totals + (size_t)state * WIDEST,
                    .sums = room.sums + (size_t)state * room.sums_stride, .sums_stride = room.sums_stride,
                    .next = next,
                };
                level->block((int)(end - row), shape->half, b == 0, &block, shape);
            }
        }
    }

    for (int64_t i = 0; i < all; i++) {
        int64_t head = (item->first_head + i / rows) * group + i % rows % group;
        int64_t row = item->first_row + i % rows / group;
        level->finish(shape, room.sums + (size_t)i * room.sums_stride, room.totals + (size_t)i * WIDEST,
                      pass->out + (size_t)(row * pass->heads + head) * (size_t)shape->words * 4);
    }
}

/* New keys and values to their pages; the keys turned so that tokens lie side by side. */
static void
write_rows(const Pass *pass)
{
    const Shape *shape = pass->shape;
    const Batch *batch = pass->batch;
    const size_t row_bytes = (size_t)shape->words * 4, step = (size_t)shape->page_size * 4;
    for (int64_t s = 0; s < batch->sequences; s++) {
        int64_t position = batch->ends[s] - (batch->bounds[s + 1] - batch->bounds[s]);
        for (int64_t row = batch->bounds[s]; row < batch->bounds[s + 1]; row++, position++) {
            size_t at = (size_t)(position % shape->page_size);
            int64_t number = batch->pages[batch->firsts[s] + position / shape->page_size];
            char *page = pass->layer + (size_t)number * shape->page_bytes;
            for (int64_t head = 0; head < shape->kv_heads; head++, page += shape->head_bytes) {
                const char *key = pass->key.base + row * pass->key.row + head * pass->key.head;
                const char *value = pass->value.base + row * pass->value.row + head * pass->value.head;
                for (size_t word = 0; word < (size_t)shape->words; word++)
                    memcpy(page + word * step + at * 4, key + word * 4, 4);
                memcpy(page + shape->block_bytes + at * row_bytes, value, row_bytes);
            }
        }
    }
}

static void
take_items(Pass *pass, char *scratch)
{
    for (;;) {
        long long i = atomic_fetch_add(&pass->next_item, 1);
        if (i >= pass->item_count)
            return;
        const Item *following = i + 1 < pass->item_count ? &pass->items[i + 1] : NULL;
        attend_item(pass, &pass->items[i], following, scratch);
    }
}

/* ---- threads: made once, asleep between passes ---- */

typedef struct {
    pthread_t *threads;
    int count; /* beside the caller's own */
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    Pass *pass;
    char *scratch;
    long round;
    int running, started, stop;
} Team;

static void *
work(void *argument)
{
    Team *team = argument;
    long seen = 0;
    pthread_mutex_lock(&team->lock);
    const int number = ++team->started;
    for (;;) {
        while (team->round == seen && !team->stop)
            pthread_cond_wait(&team->begin, &team->lock);
        if (team->stop)
            break;
        seen = team->round;
        Pass *pass = team->pass;
        char *scratch = team->scratch + (size_t)number * pass->scratch_bytes;
        pthread_mutex_unlock(&team->lock);
        take_items(pass, scratch);
        pthread_mutex_lock(&team->lock);
        if (--team->running == 0)
            pthread_cond_signal(&team->end);
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

static void
run_pass(Team *team, Pass *pass, char *scratch)
{
    const int help = team->count > 0 && pass->item_count > 1;
    write_rows(pass); /* all of them first: an item may be any part of its sequence */
    if (help) {
        pthread_mutex_lock(&team->lock);
        team->pass = pass;
        team->scratch = scratch;
        team->running = team->count;
        team->round++;
        pthread_cond_broadcast(&team->begin);
        pthread_mutex_unlock(&team->lock);
    }
    take_items(pass, scratch);
    if (help) {
        pthread_mutex_lock(&team->lock);
        while (team->running > 0)
            pthread_cond_wait(&team->end, &team->lock);
        pthread_mutex_unlock(&team->lock);
    }
}

static void
team_stop(Team *team)
{
    pthread_mutex_lock(&team->lock);
    team->stop = 1;
    pthread_cond_broadcast(&team->begin);
    pthread_mutex_unlock(&team->lock);
    for (int i = 0; i < team->count; i++)
        pthread_join(team->threads[i], NULL);
    free(team->threads);
}

static int
team_start(Team *team, int threads)
{
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->begin, NULL);
    pthread_cond_init(&team->end, NULL);
    team->threads = calloc((size_t)threads, sizeof *team->threads);
    if (team->threads == NULL)
        return -1;
    for (; team->count < threads - 1; team->count++)
        if (pthread_create(&team->threads[team->count], NULL, work, team) != 0) {
            team_stop(team);
            return -1;
        }
    return 0;
}

/* ---- Python ---- */

#define KERNEL "kvseal.engine._attention.kernel"
#define PLAN "kvseal.engine._attention.plan"

typedef struct {
    Py_buffer pool;
    Shape shape;
    const Level *level;
    Team team;
    char *scratch;
    size_t scratch_bytes;
    int busy;
} Kernel;

typedef struct {
    PyObject *owner; /* the kernel's capsule */
    Kernel *kernel;
    Batch batch;
    Item *items;
    int64_t item_room;
} Plan;

static void
kernel_free(PyObject *capsule)
{
    Kernel *kernel = PyCapsule_GetPointer(capsule, KERNEL);
    if (kernel == NULL)
        return;
    team_stop(&kernel->team);
    PyBuffer_Release(&kernel->pool);
    free(kernel->scratch);
    free(kernel);
}

static void
plan_free(PyObject *capsule)
{
    Plan *plan = PyCapsule_GetPointer(capsule, PLAN);
    if (plan == NULL)
        return;
    free(plan->batch.bounds);
    free(plan->items);
    Py_DECREF(plan->owner);
    free(plan);
}

static PyObject *
levels(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *names = PyList_New(0);
    for (int i = 0; names != NULL && i < LEVEL_COUNT; i++) {
        if (!level_runs_here(&LEVELS[i]))
            continue;
        PyObject *name = PyUnicode_FromString(LEVELS[i].name);
        if (name == NULL || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static int
get_shape(PyObject *args, Shape *shape, int *threads)
{
    int item_bytes;
    PyObject *pool, *level;
    long long layers, kv_heads, head_dim, page_size;
    if (!PyArg_ParseTuple(args, "OOLLLLii:open", &pool, &level, &layers, &kv_heads, &head_dim, &page_size,
                          &item_bytes, threads))
        return -1;
    const long long most = 1 << 20; /* of each: products of all stay far from overflow */
    if (layers < 1 || kv_heads < 1 || head_dim < 1 || page_size < 1 || layers > most || kv_heads > 4096 ||
        head_dim > 65536 || page_size > 65536 || *threads < 1 || *threads > 1024) {
        PyErr_SetString(PyExc_ValueError, "an extent of the layout is out of range");
        return -1;
    }
    if ((item_bytes != 2 && item_bytes != 4) || head_dim * item_bytes % 4 != 0) {
        PyErr_Format(PyExc_ValueError, "a key of %lld numbers of %d bytes is not made of words of 4 bytes", head_dim,
                     item_bytes);
        return -1;
    }
    *shape = (Shape){.layers = layers, .kv_heads = kv_heads, .head_dim = head_dim, .page_size = page_size,
                     .words = head_dim * item_bytes / 4, .half = item_bytes == 2};
    shape->head_bytes = (size_t)(page_size * shape->words * 4);
    shape->block_bytes = shape->head_bytes * (size_t)kv_heads;
    shape->layer_bytes = 2 * shape->block_bytes;
    shape->page_bytes = shape->layer_bytes * (size_t)layers;
    return 0;
}

static const Level *
find_level(PyObject *name)
{
    for (int i = 0; i < LEVEL_COUNT; i++)
        if (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, LEVELS[i].name) == 0 &&
            level_runs_here(&LEVELS[i]))
            return &LEVELS[i];
    PyErr_Format(PyExc_ValueError, "this processor has no level %R", name);
    return NULL;
}

static PyObject *
open_kernel(PyObject *module, PyObject *args)
{
    (void)module;
    Shape shape;
    int threads;
    if (get_shape(args, &shape, &threads) < 0)
        return NULL;
    const Level *level = find_level(PyTuple_GetItem(args, 1));
    if (level == NULL)
        return NULL;
    Kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel == NULL)
        return PyErr_NoMemory();
    if (PyObject_GetBuffer(PyTuple_GetItem(args, 0), &kernel->pool, PyBUF_STRIDES | PyBUF_WRITABLE) < 0) {
        free(kernel);
        return NULL;
    }
    kernel->shape = shape;
    kernel->level = level;
    const Py_buffer *pool = &kernel->pool;
    if (pool->ndim != 2 || pool->itemsize != 1 || (size_t)pool->shape[1] != shape.page_bytes ||
        !PyBuffer_IsContiguous(pool, 'C'))
        PyErr_Format(PyExc_ValueError, "the pool must be bytes of shape [pages, %zu], contiguous", shape.page_bytes);
    else if (team_start(&kernel->team, threads) < 0)
        PyErr_SetString(PyExc_OSError, "no threads for attention");
    else {
        PyObject *capsule = PyCapsule_New(kernel, KERNEL, kernel_free);
        if (capsule != NULL)
            return capsule;
        team_stop(&kernel->team);
    }
    PyBuffer_Release(&kernel->pool);
    free(kernel);
    return NULL;
}

/* A list of int64, or -1 with an error. */
static int
get_list(PyObject *object, Py_buffer *view, const char *role)
{
    if (PyObject_GetBuffer(object, view, PyBUF_STRIDES | PyBUF_FORMAT) < 0)
        return -1;
    int is_int64 = view->itemsize == 8 && (strcmp(view->format, "l") == 0 || strcmp(view->format, "q") == 0);
    if (view->ndim == 1 && is_int64 && PyBuffer_IsContiguous(view, 'C'))
        return 0;
    PyErr_Format(PyExc_ValueError, "%s must be contiguous int64 of shape [n]", role);
    PyBuffer_Release(view);
    return -1;
}

/* Copies of the lists, checked: rows follow one another, each sequence has the pages that it needs, and the pool has
 * those pages. */
static int
fill_batch(Batch *batch, const Kernel *kernel, const Py_buffer lists[3])
{
    const int64_t n = lists[1].shape[0], pages = lists[2].shape[0];
    if (n < 1 || lists[0].shape[0] != n + 1) {
        PyErr_SetString(PyExc_ValueError, "bounds must have one entry more than ends");
        return -1;
    }
    batch->sequences = n;
    batch->bounds = malloc(((size_t)n * 3 + 2 + (size_t)pages) * sizeof(int64_t));
    if (batch->bounds == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    batch->ends = batch->bounds + n + 1;
    batch->firsts = batch->ends + n;
    batch->pages = batch->firsts + n + 1;
    memcpy(batch->bounds, lists[0].buf, ((size_t)n + 1) * sizeof(int64_t));
    memcpy(batch->ends, lists[1].buf, (size_t)n * sizeof(int64_t));
    memcpy(batch->pages, lists[2].buf, (size_t)pages * sizeof(int64_t));
    batch->firsts[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t rows = batch->bounds[i + 1] - batch->bounds[i];
        if (batch->bounds[0] != 0 || rows < 1 || rows > batch->ends[i] || batch->ends[i] > INT32_MAX) {
            PyErr_Format(PyExc_ValueError, "sequence %lld: its rows or its end are out of range", (long long)i);
            return -1;
        }
        batch->firsts[i + 1] = batch->firsts[i] + (batch->ends[i] - 1) / kernel->shape.page_size + 1;
    }
    if (batch->firsts[n] != pages) {
        PyErr_Format(PyExc_ValueError, "%lld pages for sequences that need %lld", (long long)pages,
                     (long long)batch->firsts[n]);
        return -1;
    }
    for (int64_t i = 0; i < pages; i++)
        if (batch->pages[i] < 0 || batch->pages[i] >= kernel->pool.shape[0]) {
            PyErr_Format(PyExc_IndexError, "page %lld is outside the pool of %zd pages", (long long)batch->pages[i],
                         kernel->pool.shape[0]);
            return -1;
        }
    return 0;
}

static PyObject *
prepare(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *owner, *objects[3];
    Py_buffer lists[3];
    if (!PyArg_ParseTuple(args, "OOOO:prepare", &owner, &objects[0], &objects[1], &objects[2]))
        return NULL;
    Kernel *kernel = PyCapsule_GetPointer(owner, KERNEL);
    if (kernel == NULL)
        return NULL;
    const char *roles[3] = {"bounds", "ends", "pages"};
    int got = 0;
    while (got < 3 && get_list(objects[got], &lists[got], roles[got]) == 0)
        got++;
    Plan *plan = got == 3 ? calloc(1, sizeof *plan) : NULL;
    PyObject *capsule = NULL;
    if (got == 3 && plan == NULL)
        PyErr_NoMemory();
    else if (plan != NULL && fill_batch(&plan->batch, kernel, lists) == 0) {
        plan->kernel = kernel;
        plan->owner = owner;
        capsule = PyCapsule_New(plan, PLAN, plan_free);
        if (capsule != NULL)
            Py_INCREF(owner);
    }
    if (capsule == NULL && plan != NULL) {
        free(plan->batch.bounds);
        free(plan);
    }
    while (got > 0)
        PyBuffer_Release(&lists[--got]);
    return capsule;
}

/* The items of a pass, long ones first so that threads end together. 0 where memory is missing. */
static int64_t
make_items(Plan *plan, int64_t group, int threads)
{
    const Batch *batch = &plan->batch;
    const int64_t kv_heads = plan->kernel->shape.kv_heads;
    const int64_t height = group >= TILE_ROWS ? 1 : TILE_ROWS / group;
    /* One item walks all heads of a page, which lie side by side; with few sequences the threads need more items. */
    const int64_t heads = threads > 1 && batch->sequences < 4 * threads ? 1 : kv_heads;
    const int64_t room = (batch->bounds[batch->sequences] / height + 2 * batch->sequences) * kv_heads;
    if (plan->item_room < room) {
        free(plan->items);
        plan->items = malloc((size_t)room * sizeof(Item));
        plan->item_room = plan->items == NULL ? 0 : room;
        if (plan->items == NULL)
            return 0;
    }
    int64_t count = 0;
    for (int64_t s = batch->sequences - 1; s >= 0; s--) {
        const int64_t first = batch->bounds[s], last = batch->bounds[s + 1];
        const int64_t step = last - first == 1 ? heads : 1;
        for (int64_t head = 0; head < kv_heads; head += step)
            for (int64_t row = last; row > first; row -= smaller_of(height, row - first))
                plan->items[count++] = (Item){s, row - smaller_of(height, row - first), row, head, head + step};
    }
    return count;
}

static int
make_room(Kernel *kernel, Pass *pass)
{
    Room ignored;
    pass->scratch_bytes = 0;
    for (int64_t i = 0; i < pass->item_count; i++) {
        size_t needed = lay_out(pass, &pass->items[i], NULL, &ignored);
        if (needed > pass->scratch_bytes)
            pass->scratch_bytes = needed;
    }
    size_t total = pass->scratch_bytes * (size_t)(kernel->team.count + 1) + 64;
    if (total > kernel->scratch_bytes) {
        free(kernel->scratch);
        kernel->scratch = malloc(total);
        kernel->scratch_bytes = kernel->scratch == NULL ? 0 : total;
    }
    return kernel->scratch == NULL ? -1 : 0;
}

static PyObject *
attend(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *capsule;
    long long layer, heads, strides[6];
    unsigned long long out, query, key, value;
    double scale;
    if (!PyArg_ParseTuple(args, "OLLdKKLLKLLKLL:attend", &capsule, &layer, &heads, &scale, &out, &query, &strides[0],
                          &strides[1], &key, &strides[2], &strides[3], &value, &strides[4], &strides[5]))
        return NULL;
    Plan *plan = PyCapsule_GetPointer(capsule, PLAN);
    if (plan == NULL)
        return NULL;
    Kernel *kernel = plan->kernel;
    const Shape *shape = &kernel->shape;
    if (layer < 0 || layer >= shape->layers)
        return PyErr_Format(PyExc_IndexError, "layer %lld of %lld", layer, (long long)shape->layers);
    if (heads < 1 || heads % shape->kv_heads != 0 || heads > 65536)
        return PyErr_Format(PyExc_ValueError, "%lld query heads for %lld key heads", heads, (long long)shape->kv_heads);
    if (kernel->busy)
        return PyErr_Format(PyExc_RuntimeError, "another pass is running with this kernel");
    Pass pass = {
        .shape = shape, .level = kernel->level, .batch = &plan->batch,
        .layer = (char *)kernel->pool.buf + (size_t)layer * shape->layer_bytes,
        .query = {(char *)(uintptr_t)query, strides[0], strides[1]},
        .key = {(char *)(uintptr_t)key, strides[2], strides[3]},
        .value = {(char *)(uintptr_t)value, strides[4], strides[5]},
        .out = (char *)(uintptr_t)out, .heads = heads, .group = heads / shape->kv_heads, .scale = (float)scale,
    };
    /* log2(e): weights are powers of two. */
    pass.scale = (float)(scale * 1.4426950408889634);
    pass.item_count = make_items(plan, pass.group, kernel->team.count + 1);
    pass.items = plan->items;
    if (pass.item_count == 0 || make_room(kernel, &pass) < 0)
        return PyErr_NoMemory();
    char *scratch = (char *)(((uintptr_t)kernel->scratch + 63) & ~(uintptr_t)63);
    kernel->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    run_pass(&kernel->team, &pass, scratch);
    Py_END_ALLOW_THREADS
    kernel->busy = 0;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"levels", levels, METH_NOARGS, "levels()\n--\n\nNames of the levels that run on this processor, best first."},
    {"open", open_kernel, METH_VARARGS,
     "open(pool, level, layers, kv_heads, head_dim, page_size, item_bytes, threads)\n--\n\nA kernel over a pool."},
    {"prepare", prepare, METH_VARARGS, "prepare(kernel, bounds, ends, pages)\n--\n\nA checked batch."},
    {"attend", attend, METH_VARARGS,
     "attend(plan, layer, heads, scale, out, query, head, row, key, head, row, value, head, row)\n--\n\n"
     "Addresses and strides in bytes; the caller vouches for them."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kvseal.engine._attention",
    .m_doc = "Attention over pages; use kvseal.engine.native_attention.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__attention(void)
{
    return PyModuleDef_Init(&definition);
}
