/* Attention of one work item, for one vector width. Included by _attention.c once per level, which defines before
 *
 *   W            floats in a vector                    MOST_ROWS  rows whose sums fit the registers
 *   HAVE_DOT     1 where FN(dot) exists                FN(name)   the name with the level's suffix
 *   CODE, ENTRY  how a function of this level is declared, inlined and not
 *   LANES        what load_lanes takes
 *
 * and FN(lanes_of), FN(load_lanes), FN(fma), FN(larger), FN(largest), FN(dot). larger(c, x) is x where x is NaN: a
 * number that is not finite must reach the logits, where it ends the request (G8). dot(acc, pairs, word) adds the
 * products of the two bfloat16 numbers of each lane with those of `word`.
 */

#define VF FN(floats)
#define VU FN(words)
#define load FN(load)
#define store FN(store)
#define splat FN(splat)
#define lanes_of FN(lanes_of)
#define load_lanes FN(load_lanes)
#define fma FN(fma)
#define larger FN(larger)
#define largest FN(largest)
#define dot FN(dot)

/* Powers of two for x <= 0, relative error below 2e-7; exactly 0 from -126.5 on down, and for -inf; NaN for NaN. */
CODE VF
FN(power)(VF x)
{
    const VF magic = splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer, held in the low bits */
    VF y = larger(splat(-127.0f), x);
    VF t = y + magic;
    VF f = y - (t - magic);
    VF sum = splat(1.5469732e-4f);
    sum = fma(sum, f, splat(1.34004327e-3f));
    sum = fma(sum, f, splat(9.61802527e-3f));
    sum = fma(sum, f, splat(5.55032715e-2f));
    sum = fma(sum, f, splat(2.40226507e-1f));
    sum = fma(sum, f, splat(6.93147182e-1f));
    sum = fma(sum, f, splat(1.0f));
    return sum * (VF)(((VU)t << 23) + 0x3f800000u);
}

CODE VF
FN(even)(VF words)
{
    return (VF)((VU)words << 16);
}

/* To the nearest bfloat16, ties to even, in the upper half. A NaN stays one, whatever its lower half holds. */
CODE VU
FN(round)(VU bits)
{
    VU nan = (VU)((bits & 0x7fffffffu) > 0x7f800000u);
    VU rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    return (rounded & ~nan) | (nan & 0x7fc00000u);
}

CODE VF
FN(odd)(VF words)
{
    return (VF)((VU)words & 0xffff0000u);
}

/* Scores of `rows` query rows with the tokens of two tiles, one token in each lane, times `scale`, to
 * scores[row][0 .. 2 W). `query` is packed as pack_queries leaves it. */
CODE void
FN(score)(const int rows, const int half, const int ahead, const Tile *tile, size_t head, const Shape *shape,
          const uint32_t *query, float scale, float *scores, const char *const *next)
{
    VF first[MOST_ROWS], second[MOST_ROWS];
    for (int r = 0; r < rows; r++)
        first[r] = second[r] = (VF){0};
    const char *one = tile[0].key + head, *two = tile[1].key + head;
    const LANES one_lanes = lanes_of(tile[0].lanes), two_lanes = lanes_of(tile[1].lanes);
    const size_t step = (size_t)shape->page_size * 4;
    for (int64_t word = 0; word < shape->words; word++, one += step, two += step) {
        VF a = load_lanes(one, one_lanes), b = load_lanes(two, two_lanes);
        if (ahead) {
            __builtin_prefetch(next[0] + (size_t)word * W * 4, 0, 2);
            __builtin_prefetch(next[1] + (size_t)word * W * 4, 0, 2);
        }
        if (!half) {
            for (int r = 0; r < rows; r++) {
                VF q = splat(as_float(*query++));
                first[r] = fma(a, q, first[r]);
                second[r] = fma(b, q, second[r]);
            }
        }
        else if (HAVE_DOT) {
            for (int r = 0; r < rows; r++) {
                uint32_t q = *query++;
                first[r] = dot(first[r], a, q);
                second[r] = dot(second[r], b, q);
            }
        }
        else {
            VF a0 = FN(even)(a), a1 = FN(odd)(a), b0 = FN(even)(b), b1 = FN(odd)(b);
            for (int r = 0; r < rows; r++) {
                VF q0 = splat(as_float(*query++)), q1 = splat(as_float(*query++));
                first[r] = fma(a1, q1, fma(a0, q0, first[r]));
                second[r] = fma(b1, q1, fma(b0, q0, second[r]));
            }
        }
    }
    for (int r = 0; r < rows; r++) {
        store(scores + (size_t)r * UNIT, first[r] * splat(scale));
        store(scores + (size_t)r * UNIT + W, second[r] * splat(scale));
    }
}

/* One row's scores of `tiles` tiles become weights relative to the largest score so far. Returns by what the row's
 * earlier sums shrink. Tokens from position `limit` on get weight 0. */
CODE float
FN(weigh)(const Tile *tile, int tiles, int64_t limit, float *scores, float *peak, float *total)
{
    VF most = splat(*peak);
    for (int i = 0; i < tiles; i++) {
        float *at = scores + (size_t)i * W;
        int64_t seen = limit - tile[i].first;
        if (seen > tile[i].lanes)
            seen = tile[i].lanes;
        if (seen < W) {
            VF part;
            memcpy(&part, at, sizeof part);
            VU hidden = (VU)(LANE_NUMBERS >= splat((float)seen));
            part = (VF)(((VU)part & ~hidden) | (hidden & 0xff800000u)); /* -inf */
            store(at, part);
        }
        most = larger(most, load(at));
    }
    const float now = largest(most);
    const VF shift = splat(now);
    const VF shrink = FN(power)(splat(*peak) - shift);
    VF sum = load(total) * shrink;
    for (int i = 0; i < tiles; i++) {
        float *at = scores + (size_t)i * W;
        VF weight = FN(power)(load(at) - shift);
        store(at, weight);
        sum += weight;
    }
    store(total, sum);
    *peak = now;
    return shrink[0];
}

/* sums[row][strip] = sums * shrink[row] + weights times values, over `tiles` tiles. A strip is `vectors` vectors of
 * words of each value; of bfloat16 words the even and the odd numbers have a vector of sums each. */
CODE void
FN(gather)(const int rows, const int vectors, const int half, const int ahead, const Tile *tile, int tiles,
           size_t head, const Shape *shape, size_t strip, const float *weights, const float *shrink,
           float *sums, size_t sums_stride, const char *const *next)
{
    VF sum[MOST_ROWS][4];
    const int parts = half ? 2 : 1;
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors * parts; j++)
            sum[r][j] = load(sums + (size_t)r * sums_stride + (size_t)j * W) * splat(shrink[r]);
    const size_t row_bytes = (size_t)shape->words * 4;
    const size_t left = (size_t)shape->words - strip - (size_t)(vectors - 1) * W;
    const LANES last = lanes_of(left < W ? (int)left : W);
    for (int i = 0; i < tiles; i++) {
        const char *value = tile[i].value + head + strip * 4;
        const char *fetch = ahead ? next[i] + strip * 4 : value;
        const float *weight = weights + (size_t)i * W;
        for (int t = 0; t < tile[i].lanes; t++, value += row_bytes, fetch += row_bytes) {
            VF v[4];
            for (int j = 0; j < vectors; j++) {
                VF words = load_lanes(value + (size_t)j * W * 4, j == vectors - 1 ? last : lanes_of(W));
                if (ahead)
                    __builtin_prefetch(fetch + (size_t)j * W * 4, 0, 2);
                if (half) {
                    v[2 * j] = FN(even)(words);
                    v[2 * j + 1] = FN(odd)(words);
                }
                else
                    v[j] = words;
            }
            for (int r = 0; r < rows; r++) {
                VF w = splat(weight[(size_t)r * UNIT + (size_t)t]);
                for (int j = 0; j < vectors * parts; j++)
                    sum[r][j] = fma(w, v[j], sum[r][j]);
            }
        }
    }
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < vectors * parts; j++)
            store(sums + (size_t)r * sums_stride + (size_t)j * W, sum[r][j]);
}

/* Calls gather with its constants as constants: each case is compiled on its own. */
CODE void
FN(gather_rows)(const int rows, const int half, const int ahead, const Tile *tile, int tiles, size_t head,
                const Shape *shape, const float *weights, const float *shrink, float *sums, size_t sums_stride,
                const char *const *next)
{
    const size_t words = (size_t)shape->words, parts = half ? 2 : 1;
    const size_t widest = half ? 2 : 4;
    for (size_t strip = 0; strip < words;) {
        const size_t vectors = (words - strip + W - 1) / W;
        float *at = sums + strip * parts;
        if (vectors >= 4 && widest == 4) {
            FN(gather)(rows, 4, half, ahead, tile, tiles, head, shape, strip, weights, shrink, at, sums_stride, next);
            strip += 4 * W;
        }
        else if (vectors >= 2) {
            FN(gather)(rows, 2, half, ahead, tile, tiles, head, shape, strip, weights, shrink, at, sums_stride, next);
            strip += 2 * W;
        }
        else {
            FN(gather)(rows, 1, half, ahead, tile, tiles, head, shape, strip, weights, shrink, at, sums_stride, next);
            strip += W;
        }
    }
}

/* One block of query rows over one unit of tiles of one key head. */
CODE void
FN(attend_rows)(const int rows, const int half, const int ahead, const Block *block, const Shape *shape)
{
    for (int i = 0; i < block->tiles; i += 2)
        FN(score)(rows, half, ahead, block->tile + i, block->head, shape, block->query, block->scale,
                  block->scores + (size_t)i * W, block->next + i);
    float shrink[MOST_ROWS];
    for (int r = 0; r < rows; r++) {
        int64_t limit = block->position + (block->row + r) / block->group + 1;
        shrink[r] = FN(weigh)(block->tile, block->tiles, limit, block->scores + (size_t)r * UNIT, block->peak + r,
                              block->total + (size_t)r * WIDEST);
    }
    FN(gather_rows)(rows, half, ahead, block->tile, block->tiles, block->head, shape, block->scores, shrink,
                    block->sums, block->sums_stride, block->next + block->unit_tiles);
}

ENTRY void
FN(attend_block)(int rows, const int half, const int ahead, const Block *block, const Shape *shape)
{
#define CASE(n) \
    case n: \
        if (half && ahead) \
            FN(attend_rows)(n, 1, 1, block, shape); \
        else if (half) \
            FN(attend_rows)(n, 1, 0, block, shape); \
        else if (ahead) \
            FN(attend_rows)(n, 0, 1, block, shape); \
        else \
            FN(attend_rows)(n, 0, 0, block, shape); \
        break;
    switch (rows) {
        CASE(1)
        CASE(2)
        CASE(3)
#if MOST_ROWS >= 6
        CASE(4)
        CASE(5)
        CASE(6)
#endif
    default:
        break;
    }
#undef CASE
}

/* Divide by the total of the weights and write the row, `words` words, to `out`. */
ENTRY void
FN(finish_row)(const Shape *shape, const float *sums, const float *total, char *out)
{
    float weight = 0;
    for (int i = 0; i < W; i++)
        weight += total[i];
    const VF factor = splat(1.0f / weight);
    for (size_t at = 0; at < (size_t)shape->words; at += W) {
        VF words;
        if (shape->half) {
            VU low = (VU)(load(sums + 2 * at) * factor), high = (VU)(load(sums + 2 * at + W) * factor);
            words = (VF)((FN(round)(low) >> 16) | (FN(round)(high) & 0xffff0000u));
        }
        else
            words = load(sums + at) * factor;
        size_t left = (size_t)shape->words - at;
        memcpy(out + at * 4, &words, (left < W ? left : W) * 4);
    }
}

#undef VF
#undef VU
#undef load
#undef store
#undef splat
#undef lanes_of
#undef load_lanes
#undef fma
#undef larger
#undef largest
#undef dot
