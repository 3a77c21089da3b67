/* The vectors of one level, and what the compiler can do with them by itself. Included by _attention.c. */

typedef float FN(floats) __attribute__((vector_size(4 * W)));
typedef uint32_t FN(words) __attribute__((vector_size(4 * W)));

CODE FN(floats)
FN(load)(const float *at)
{
    FN(floats) v;
    memcpy(&v, at, sizeof v);
    return v;
}

CODE void
FN(store)(float *at, FN(floats) v)
{
    memcpy(at, &v, sizeof v);
}

CODE FN(floats)
FN(splat)(float x)
{
    return x - (FN(floats)){0};
}
