/* By what the numbers of one tensor are known again (sketch.py is the definition), and its statistics in the same pass;
 * it stands behind statistics.cu.
 *
 * Numbers are taken in their logical order. A warp takes the 2,048 bytes that are hashed together, a tile: of each quarter a
 * thread has sixteen. Blocks are a multiple of seventeen where a warp takes more than one tile: then a thread's numbers belong
 * to the same sums of the flat order each time, which stay in registers. Sums by the axes stay in shared memory, each thread's
 * own. All are joined in a fixed order: threads by their block, which leaves its part in memory; blocks later, for many launches
 * at once, since a launch would wait for it.
 *
 * There are three kernels. The even one is for what most of a transformer's numbers are: rows of whole blocks of weights. Then
 * all that a warp takes in one turn stands in the same row, what was weighed for the flat order is used for the axes, too, and
 * what the axes say of it is found for 16 turns at once, by a lane each. The short one is for rows of which a warp reads several
 * at once, as the heads of attention are: a thread's numbers stand at the same places of their rows each time. The other one is
 * for every order there is; rows that are long are gone through a second time there, by their own blocks of weights.
 */
#define THREADS 256
#define WEIGHTS 1024
#define LANES 16
#define PRIME 17
#define PLACES (PRIME + LANES - 1) /* of a thread: the sums from the eighteenth on belong to the first ones */
#define QUARTERS 4
#define MOST_AXES 9
#define LARGEST 1e30
#define SHORT_TILES 4 /* after so many short sums are added to the long ones */
#define POWERS (2 * PART)             /* of a part, behind the statistics and those of numbers that are too large: |x|, x³, x⁴, … */
#define BY_PLACE (POWERS + 3)         /* … both kinds of sums by place, … */
#define HASH (BY_PLACE + 2 * PRIME)   /* … and the hash */
#define COLUMNS 5 /* of the parts, that a warp joins */

/* An axis of more than one number, the innermost first; n / size is (n * magic >> 32) + n >> shift, below 2**31. */
struct Axis { u64 size; u32 magic, shift; long long step; };
struct Order { u64 count; u32 axes, is_flat, is_whole, kernel; Axis axis[MOST_AXES]; };
/* What is wanted: all; of numbers whose row is known, where the flat order is the same, only the sums by axes; and where they
 * are on the same axes in another order, only what the flat order gives. */
enum Wanted { ALL, ONLY_AXES, ONLY_FLAT };
/* Where numbers stand is an Index: u32, or u64 where there are more of them than 2**31. */

__device__ constexpr u64 stirred(u64 counter)
{
    u64 z = (counter + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}
__device__ constexpr float weight_of(u32 at)
{
    const u64 z = stirred(at);
    const float size = 0.5f + (float)(u32)(z >> 41) * 1.1920928955078125e-07f;
    return z & 1 ? -size : size;
}
__device__ constexpr bool is_turned(u64 block) { return block && stirred(WEIGHTS + block) & 1; }
__device__ constexpr u64 key_of(u32 at) { return stirred((1ull << 32) + at); }

/* What is the same for all tensors. Weights lie so that threads which read each the eighth one do not wait for one another;
 * and once more by fours, each second four apart, for threads that read neighbours at once. */
#define LIES(AT) ((AT) + (AT) / 8)
#define FOUR(AT) ((AT) / 4 % 2 * (WEIGHTS / 8 + 4) + (AT) / 8)
#define SIGNS 64 /* of blocks of weights that are at hand */
struct alignas(16) Fours { float fours[WEIGHTS + 16], signs[SIGNS]; u64 keys[QUARTERS * 64]; };
struct alignas(16) Tables : Fours { float each[LIES(WEIGHTS)]; };
__device__ constexpr Tables all_tables()
{
    Tables made = {};
    for (u32 at = 0; at < WEIGHTS; at++) made.fours[4 * FOUR(at) + at % 4] = made.each[LIES(at)] = weight_of(at);
    for (u32 at = 0; at < SIGNS; at++) made.signs[at] = is_turned(at) ? -1.0f : 1.0f;
    for (u32 at = 0; at < QUARTERS * 64; at++) made.keys[at] = key_of(at % 64) ^ key_of(64 + at / 64);
    return made;
}
__device__ const Tables TABLES = all_tables(); /* by the compiler: each block would take microseconds for it */

template <int wide> __device__ __forceinline__ void weights_at(float (&found)[wide], const Fours &tables, u32 at)
{
    if (wide < 4) {
#pragma unroll
        for (int k = 0; k < wide; k++) found[k] = tables.fours[4 * FOUR(at) + at % 4 + k];
    } else {
#pragma unroll
        for (int k = 0; k < wide; k += 4) {
            const float4 four = *(const float4 *)&tables.fours[4 * FOUR(at + k)];
            found[k] = four.x; found[k + 1] = four.y; found[k + 2] = four.z; found[k + 3] = four.w;
        }
    }
}
__device__ __noinline__ float sign_of(u64 block) { return is_turned(block) ? -1.0f : 1.0f; }
template <typename Index> __device__ __forceinline__ float sign_at(const Fours &tables, Index block)
{
    return block < SIGNS ? tables.signs[block] : sign_of(block);
}

__device__ __forceinline__ u64 hashed(u64 word, u64 key)
{
    word ^= key;
    u64 product = (u64)(u32)word * (u32)(word >> 32);
    return (product << 32 | product >> 32) + (word ^ key);
}
__device__ __forceinline__ u64 factor_of(u64 tile) { return stirred((2ull << 32) + tile) | 1; }

/* The smaller ones of two pairs of narrow numbers, the larger ones, and of some without signs the larger ones, or NaN: in one
 * instruction each. */
#if __CUDA_ARCH__ >= 800
#define PAIRS(NAME, KIND) \
__device__ __forceinline__ u32 smaller(u32 a, u32 b, NAME##_numbers) { u32 r; asm("min." KIND " %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r; } \
__device__ __forceinline__ u32 larger(u32 a, u32 b, NAME##_numbers) { u32 r; asm("max." KIND " %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r; } \
__device__ __forceinline__ u32 farther(u32 a, u32 b, NAME##_numbers) { u32 r; asm("max.NaN." KIND " %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b)); return r; }
#else
#define PAIR(NAME, WHICH, THAN) \
__device__ __forceinline__ u32 WHICH(u32 a, u32 b, NAME##_numbers read) \
{ return ((read(a >> 16) THAN read(b >> 16) ? a : b) & 0xFFFF0000u) | ((read((u16)a) THAN read((u16)b) ? a : b) & 0xFFFFu); }
#define PAIRS(NAME, KIND) PAIR(NAME, smaller, <) PAIR(NAME, larger, >) \
__device__ __forceinline__ u32 farther(u32 a, u32 b, NAME##_numbers) \
{ return (a >> 16 > b >> 16 ? a : b) & 0xFFFF0000u | ((u16)a > (u16)b ? a : b) & 0xFFFFu; }
#endif
PAIRS(bfloat16, "bf16x2")
PAIRS(float16, "f16x2")

/* What one thread adds up, in registers: short sums, which are added to the long ones now and then. Powers are those of numbers
 * times a scale, a power of two by which they fit. */
template <typename Real> struct Short {
    Real shift, scale, low, high;
    Real one, two, sizes, cubes, fourths;
    Real sum, squares, all_sizes, all_cubes, all_fourths;
    u32 lows, highs; /* of narrow numbers the ends, in pairs */
    u32 zeros, loads;
};
/* What is not plain, one by one, and in memory: those beyond LARGEST are not in the sketch. As good as never used. */
struct Odd { Sums<double> all, large; bool has_large; double powers[3]; };
__device__ __forceinline__ float magnitude(float x) { return fabsf(x); }
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }
#define LOWEST -120
__device__ __forceinline__ int exponent_of(float x)
{
    const int found = (int)(__float_as_uint(x) >> 23 & 255) - 127;
    return found < LOWEST ? LOWEST : found > 88 ? 88 : found;
}
__device__ __forceinline__ int exponent_of(double) { return 0; }
__device__ __forceinline__ float scale_of(int exponent, float) { return __uint_as_float((u32)(127 - exponent) << 23); }
__device__ __forceinline__ double scale_of(int, double) { return 1; }
__device__ __forceinline__ float scaled(float x, float scale) { return x * scale; }
__device__ __forceinline__ double scaled(double x, double) { return x; }
__device__ __forceinline__ bool has_room(float fourths) { return fourths < 1e10f; } /* also: none is larger than 2**98 */
__device__ __forceinline__ bool has_room(double fourths) { return fourths < 1e100; }
__device__ __forceinline__ int exponent_in(float scale) { return 127 - (int)(__float_as_uint(scale) >> 23); }
__device__ __forceinline__ int exponent_in(double) { return 0; }
__device__ __forceinline__ double times_power(double x, int exponent) { return x * __longlong_as_double((1023ll + exponent) << 52); }

template <typename Real> __device__ __forceinline__ void drain(Short<Real> &s)
{
    s.sum += s.one; s.squares += s.two; s.all_sizes += s.sizes; s.all_cubes += s.cubes; s.all_fourths += s.fourths;
    s.one = s.two = s.sizes = s.cubes = s.fourths = 0;
}

/* Larger numbers have come: as they are summed from now on, what was summed is small. */
template <typename Real> __device__ __forceinline__ void rescale(Short<Real> &s, int exponent)
{
    const int more = exponent - exponent_in(s.scale);
    const Real less = more > 100 ? (Real)0 : scale_of(more, (Real)0);
    drain(s);
    s.all_cubes *= less * less * less; s.all_fourths *= less * less * less * less;
    s.scale = scale_of(exponent, (Real)0);
}

/* Numbers of one load, one by one; those that are not to be summed by place become 0. The exponent that fits them all. */
template <typename Real> __device__ __noinline__ int add_each(Odd &odd, bool is_first, double shift, Real *x, int have, int exponent)
{
    if (is_first) {
        const Sums<double> none = {0, 0, 0, 0, 0, INFINITE, -INFINITE, 0, 0, 0, 0.0, 0.0};
        odd = {none, none, false, {0, 0, 0}};
        odd.all.shift = shift;
    }
    for (int k = 0; k < have; k++) {
        const double one = (double)x[k], size = fabs(one);
        if (size <= LARGEST) {
            add(odd.all, one);
            odd.powers[0] += size; odd.powers[1] += one * one * one; odd.powers[2] += one * one * one * one;
            exponent = exponent_of(x[k]) > exponent ? exponent_of(x[k]) : exponent;
            continue;
        }
        if (one - one == 0) settle(odd.large, one, odd.has_large);
        add(one - one == 0 ? odd.large : odd.all, one);
        x[k] = 0;
    }
    return exponent;
}

/* The ends of the numbers of one load; whether one of them may be 0. */
template <int wide, typename Real, typename Read>
__device__ __forceinline__ bool add_ends(Short<Real> &s, const Real (&x)[wide], const uint4 &, const Read &)
{
    Real nearest = magnitude(x[0]);
#pragma unroll
    for (int k = 0; k < wide; k++) {
        nearest = smaller(nearest, magnitude(x[k]));
        s.low = smaller(x[k], s.low);
        s.high = larger(x[k], s.high);
    }
    return nearest == (Real)0;
}
#define ENDS(NAME, INFINITE_PAIR) \
__device__ __forceinline__ bool add_ends(Short<float> &s, const float (&)[8], const uint4 &now, const NAME##_numbers &read) \
{ \
    const u32 all = 0x7FFF7FFFu; \
    const u32 nearest = smaller(smaller(now.x & all, now.y & all, read), smaller(now.z & all, now.w & all, read), read); \
    s.lows = smaller(s.lows, smaller(smaller(now.x, now.y, read), smaller(now.z, now.w, read), read), read); \
    s.highs = larger(s.highs, larger(larger(now.x, now.y, read), larger(now.z, now.w, read), read), read); \
    return (nearest & 0xFFFFu) == 0 || nearest < 0x10000u; \
} \
__device__ __forceinline__ void begin_ends(Short<float> &s, const NAME##_numbers &) { s.lows = INFINITE_PAIR; s.highs = s.lows | 0x80008000u; } \
__device__ __forceinline__ void join_ends(Short<float> &s, const NAME##_numbers &read) \
{ \
    s.low = smaller(read((u16)s.lows), read(s.lows >> 16)); \
    s.high = larger(read((u16)s.highs), read(s.highs >> 16)); \
}
template <typename Real, typename Read> __device__ __forceinline__ void begin_ends(Short<Real> &, const Read &) {}
template <typename Real, typename Read> __device__ __forceinline__ void join_ends(Short<Real> &, const Read &) {}
ENDS(bfloat16, 0x7F807F80u)
ENDS(float16, 0x7C007C00u)

/* The numbers of one load, together: as good as all are plain; `have` of them are there. */
template <int wide, typename Real, typename Read>
__device__ __forceinline__ void add_numbers(Short<Real> &s, Odd &odd, bool &has_odd, Real (&x)[wide], const uint4 &now, int have,
                                            const Read &read)
{
    Real one = 0, two = 0, sizes = 0, cubes = 0, fourths = 0;
#pragma unroll
    for (int k = 0; k < wide; k++) {
        const Real d = x[k] - s.shift, y = scaled(x[k], s.scale), yy = y * y;
        one += d; two += d * d; sizes += magnitude(x[k]); cubes += yy * y; fourths += yy * yy;
    }
    if (have < wide || !(is_plain(one) && is_plain(two) && has_room(fourths)) || is_lost(one, two)) { /* also if it is NaN */
        Real each[wide]; /* a copy: what is often need not lie in memory */
#pragma unroll
        for (int k = 0; k < wide; k++) each[k] = x[k];
        const int before = exponent_in(s.scale), exponent = add_each(odd, !has_odd, (double)s.shift, each, have, before);
        if (exponent != before) rescale(s, exponent);
        has_odd = true;
#pragma unroll
        for (int k = 0; k < wide; k++) x[k] = each[k];
        return;
    }
    s.one += one; s.two += two; s.loads++;
    s.sizes += sizes; s.cubes += cubes; s.fourths += fourths;
    if (add_ends(s, x, now, read))
#pragma unroll
        for (int k = 0; k < wide; k++) s.zeros += x[k] == (Real)0;
}

/* Of a thread's first numbers: the first finite one, about which all are summed, and the exponent. */
template <typename Real> struct Begun { Real shift; int exponent; bool has; };
template <typename Raw, typename Real, typename Read, int wide = 16 / sizeof(Raw)>
__device__ __noinline__ Begun<Real> begun_with(uint4 loaded, int have, Read read)
{
    Begun<Real> found = {0, exponent_of((Real)0), false};
    Raw raw[wide];
    memcpy(raw, &loaded, 16);
    for (int k = 0; k < have; k++) {
        const Real x = read(raw[k]);
        if (!(magnitude(x) <= (Real)LARGEST)) continue;
        if (!found.has) { found.shift = x; found.has = true; }
        if (exponent_of(x) > found.exponent) found.exponent = exponent_of(x);
    }
    return found;
}

/* The numbers of sixteen bytes. */
template <typename Raw, typename Real, typename Read, int wide>
__device__ __forceinline__ void unpack(Real (&x)[wide], const uint4 &loaded, const Read &read)
{
    Raw raw[wide];
    memcpy(raw, &loaded, 16);
#pragma unroll
    for (int k = 0; k < wide; k++) x[k] = (Real)read(raw[k]);
}
template <typename Raw> __device__ __forceinline__ void unpack(float (&x)[8], const uint4 &loaded, const bfloat16_numbers &)
{
    const u32 words[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
    for (int k = 0; k < 4; k++) { x[2 * k] = __uint_as_float(words[k] << 16); x[2 * k + 1] = __uint_as_float(words[k] & 0xFFFF0000u); }
}

/* ---------------------------------------------------------------- where numbers stand */

__device__ __forceinline__ u32 divided(const Axis &axis, u32 by) { return (__umulhi(by, axis.magic) + by) >> axis.shift; }
__device__ __forceinline__ u64 divided(const Axis &axis, u64 by) { return by / axis.size; }

template <typename Index> __device__ __forceinline__ void weigh(float &weight, u32 &sum, Index at, const Fours &tables)
{
    weight *= tables.fours[4 * FOUR((u32)at % WEIGHTS) + (u32)at % 4];
    sum += (u32)at % LANES;
    if (at >= WEIGHTS) { weight *= sign_at(tables, at / WEIGHTS); sum += (u32)(at / WEIGHTS) % PRIME; }
}

/* What axes say of a row: its weight and sum, and where it begins. */
struct Above { float weight; u32 sum; long long begin; };

/* One axis more; what is left for those above it. */
template <typename Index>
__device__ __forceinline__ Index take_axis(Above &row, const Order &order, int axis, Index rest, const Fours &tables)
{
    const Axis &its = order.axis[axis];
    const Index next = divided(its, rest), at = axis + 1 < (int)order.axes ? rest - next * (Index)its.size : rest;
    weigh(row.weight, row.sum, at, tables);
    if (!order.is_flat) row.begin += (long long)at * its.step;
    return next;
}

template <typename Index>
__device__ __forceinline__ void take_axes(Above &row, const Order &order, int first, Index rest, const Fours &tables)
{
#pragma unroll 1
    for (int axis = first; axis < (int)order.axes; axis++) rest = take_axis(row, order, axis, rest, tables);
}
template <typename Index>
__device__ __noinline__ void take_axes_apart(Above &row, const Order &order, int first, Index rest, const Fours &tables)
{
    take_axes(row, order, first, rest, tables);
}

/* Of numbers that each begin some more: where they stand in their rows, and what the axes but the innermost say of these.
 * Mostly the axes from the third on say the same of all. */
template <int many, typename Index> struct Rows {
    Index at[many], number[many];
    Above above[many];
};
template <int many, typename Index>
__device__ __forceinline__ Rows<many, Index> rows_of(const Order &order, Index first, Index apart, const Fours &tables)
{
    Rows<many, Index> found;
    Index rest[many];
#pragma unroll
    for (int k = 0; k < many; k++) {
        const Index number = first + k * apart;
        rest[k] = found.number[k] = divided(order.axis[0], number);
        found.at[k] = number - rest[k] * (Index)order.axis[0].size;
        found.above[k] = {1.0f, 0, 0};
        if (order.axes > 1) rest[k] = take_axis(found.above[k], order, 1, rest[k], tables);
    }
    if (order.axes <= 2) return found;
    if (rest[0] == rest[many - 1]) {
        Above above = {1.0f, 0, 0};
        take_axes(above, order, 2, rest[0], tables);
#pragma unroll
        for (int k = 0; k < many; k++) {
            found.above[k].weight *= above.weight; found.above[k].sum += above.sum; found.above[k].begin += above.begin;
        }
        return found;
    }
#pragma unroll
    for (int k = 0; k < many; k++) {
        Above above = found.above[k];
        take_axes_apart(above, order, 2, rest[k], tables);
        found.above[k] = above;
    }
    return found;
}

typedef float Places[PLACES][THREADS];

/* What was weighed of lanes that follow one another: sums are read first, since each write might be of the next. */
template <int wide, typename Real>
__device__ __forceinline__ void add_lanes(float *mine, u32 first, float by, const Real (&weighed)[wide])
{
    float before[wide];
    mine += first * THREADS;
#pragma unroll
    for (int k = 0; k < wide; k++) before[k] = mine[k * THREADS];
#pragma unroll
    for (int k = 0; k < wide; k++) mine[k * THREADS] = before[k] + (float)weighed[k] * by;
}

/* Numbers of several rows, or of a row's end. */
template <typename Real, typename Index>
__device__ __noinline__ void add_axes_each(float *mine, const Order &order, Index number, const Real *x, int have, const Fours &tables)
{
    Rows<1, Index> row = rows_of<1>(order, number, (Index)0, tables);
    for (int k = 0; k < have; k++, row.at[0]++) {
        if (row.at[0] == (Index)order.axis[0].size) row = rows_of<1>(order, (Index)(number + k), (Index)0, tables);
        float weight = row.above[0].weight;
        u32 sum = row.above[0].sum;
        weigh(weight, sum, row.at[0], tables);
        mine[sum % PRIME * THREADS] += (float)(x[k] * (Real)weight);
    }
}

/* Sums by the axes, of numbers that stand in the rows' one with this number. */
template <int wide, int many, typename Real, typename Index>
__device__ __forceinline__ void add_axes(float *mine, const Order &order, const Rows<many, Index> &rows, int which,
                                         const Real (&x)[wide], const Tables &tables)
{
    const Index at = rows.at[which], block = at / WEIGHTS;
    const u32 inner = (u32)at % WEIGHTS;
    if (at + wide <= (Index)order.axis[0].size && inner + wide <= WEIGHTS) { /* all in one row, and one block of weights */
        const u32 first = (rows.above[which].sum + (u32)block) % PRIME;
        const float by = rows.above[which].weight * sign_at(tables, block);
        if (inner % wide == 0) {
            Real weighed[wide];
            float its[wide];
            weights_at(its, tables, inner);
#pragma unroll
            for (int k = 0; k < wide; k++) weighed[k] = x[k] * (Real)its[k];
            add_lanes(mine, first + inner % LANES, by, weighed);
            return;
        }
        float before[wide];
        mine += first * THREADS;
#pragma unroll
        for (int k = 0; k < wide; k++) before[k] = mine[(inner + k) % LANES * THREADS];
#pragma unroll
        for (int k = 0; k < wide; k++)
            mine[(inner + k) % LANES * THREADS] = before[k] + (float)(x[k] * (Real)tables.each[LIES(inner + k)]) * by;
        return;
    }
    Real each[wide];
#pragma unroll
    for (int k = 0; k < wide; k++) each[k] = x[k];
    add_axes_each(mine, order, rows.number[which] * (Index)order.axis[0].size + at, each, wide, tables);
}

/* Whether all numbers of a tile are summed by their places. */
template <int wide, typename Raw, typename Real, typename Read>
__device__ __forceinline__ bool are_fine(const uint4 (&loaded)[QUARTERS], const Read &read)
{
    bool fine = true;
#pragma unroll
    for (int q = 0; q < QUARTERS; q++) {
        Real x[wide];
        unpack<Raw>(x, loaded[q], read);
#pragma unroll
        for (int k = 0; k < wide; k++) fine = fine && magnitude(x[k]) <= (Real)LARGEST;
    }
    return fine;
}
#define FINE(NAME, MOST) \
template <int wide, typename Raw, typename Real> \
__device__ __forceinline__ bool are_fine(const uint4 (&loaded)[QUARTERS], const NAME##_numbers &read) \
{ \
    const u32 all = 0x7FFF7FFFu; \
    u32 far = 0; \
    _Pragma("unroll") \
    for (int q = 0; q < QUARTERS; q++) { \
        const uint4 &now = loaded[q]; \
        far = farther(far, farther(farther(now.x & all, now.y & all, read), farther(now.z & all, now.w & all, read), read), read); \
    } \
    return (far & 0xFFFFu) <= MOST && far >> 16 <= MOST; \
}
FINE(bfloat16, 0x7149u) /* 1e30 */
FINE(float16, 0x7BFFu)

/* How many of the numbers of a load are there. */
template <typename Index> __device__ __forceinline__ int there(const Order &order, Index number, int wide)
{
    return number + (u64)wide <= order.count ? wide : number < order.count ? (int)(order.count - number) : 0;
}

/* Sixteen bytes in the logical order that are not side by side, or not all there: what is not as 0. */
template <typename Raw, typename Index, int wide = 16 / sizeof(Raw)>
__device__ __noinline__ uint4 gathered(const Raw *data, const Order &order, Index number, const Fours &tables)
{
    const int have = there(order, number, wide);
    Rows<1, Index> row = {};
    if (!order.is_flat && have) row = rows_of<1>(order, number, (Index)0, tables);
    if (order.is_flat) row.above[0].begin = (long long)number;
    uint4 found = {0, 0, 0, 0};
    Raw raw[wide];
#pragma unroll 1
    for (int k = 0; k < wide; k++, row.at[0]++) {
        if (!order.is_flat && k < have && row.at[0] == (Index)order.axis[0].size)
            row = rows_of<1>(order, (Index)(number + k), (Index)0, tables);
        raw[k] = k < have ? data[row.above[0].begin + (long long)row.at[0] * order.axis[0].step] : (Raw)0;
    }
    memcpy(&found, raw, 16);
    return found;
}

/* ---------------------------------------------------------------- what all threads have found */

template <typename Sum> __device__ __forceinline__ Sum over_warp(Sum x)
{
    for (int step = 16; step; step >>= 1) x += __shfl_down_sync(~0u, x, step);
    return x;
}

/* Parts lie so that a number of all blocks is side by side. */
#define OF_PART(AT, BLOCKS) ((u64)(AT) * (BLOCKS))

/* What a warp has found, besides the statistics. Sums by the axes from the eighteenth on belong to the first ones. */
struct OfWarp { float flat[PRIME]; double axes[PLACES], powers[3]; u64 hash; };

/* The sums of the flat order. Lanes whose numbers begin at the same place of a lane's sixteen have the same ones. */
template <int many> __device__ __forceinline__ void write_flat(OfWarp &its, float (&flat)[many], u32 first)
{
    const int wide = many - many % 2, others = LANES / wide; /* lanes until the same sums come again */
    const u32 lane = threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < many; k++)
#pragma unroll
        for (int step = 16; step >= others; step >>= 1) flat[k] += __shfl_down_sync(~0u, flat[k], step);
    if (lane < PRIME) its.flat[lane] = 0;
    __syncwarp();
    if (lane < others)
#pragma unroll
        for (int k = 0; k < many; k++) its.flat[(first + k) % PRIME] = flat[k];
}

/* The sums by the axes: each lane adds up one of them, over all lanes, and begins with its own so that nobody waits. */
__device__ __forceinline__ void write_axes(OfWarp &its, const Places &places)
{
    const u32 lane = threadIdx.x % 32, begin = threadIdx.x - lane;
    double all = 0; /* terms may be larger than all of them together */
#pragma unroll 2
    for (u32 each = 0; each < 32; each += 4) {
        float some = 0; /* but to widen each one takes long */
#pragma unroll
        for (u32 more = 0; more < 4; more++) some += places[lane][begin + (each + more + lane) % 32];
        all += some;
    }
    its.axes[lane] = all;
}

/* Sums of all warps become a block's part. */
__device__ __forceinline__ void write_sums(double *part, const OfWarp (&warps)[THREADS / 32])
{
    const u32 what = threadIdx.x / 32, lane = threadIdx.x % 32;
    double sum = 0;
    if (what == 1 && lane < PRIME) {
#pragma unroll
        for (int each = 0; each < THREADS / 32; each++) sum += warps[each].flat[lane];
        part[OF_PART(BY_PLACE + lane, gridDim.x)] = sum;
    } else if (what == 2 && lane < PRIME) {
#pragma unroll
        for (int each = 0; each < THREADS / 32; each++)
            sum += warps[each].axes[lane] + (lane + PRIME < PLACES ? warps[each].axes[lane + PRIME] : 0.0);
        part[OF_PART(BY_PLACE + PRIME + lane, gridDim.x)] = sum;
    } else if (what == 3 && lane < 3) {
#pragma unroll
        for (int each = 0; each < THREADS / 32; each++) sum += warps[each].powers[lane];
        part[OF_PART(POWERS + lane, gridDim.x)] = sum;
    } else if (what == 4 && lane == 0) {
        u64 all = 0;
#pragma unroll
        for (int each = 0; each < THREADS / 32; each++) all += warps[each].hash;
        part[OF_PART(HASH, gridDim.x)] = __longlong_as_double((long long)all);
    }
}

/* The statistics of numbers that are in the sketch, and of those that are not. */
struct Both { Joined<double, double> all, large; double center, large_center; };

/* What is not plain comes to what is; the first thread gets it. */
__device__ __noinline__ void add_odd(Both &both, const Odd &mine, bool has_odd)
{
    Sums<double> all = {}, large = {};
    all.low = large.low = INFINITE; all.high = large.high = -INFINITE;
    if (has_odd) { all = mine.all; large = mine.large; }
    drain(all); drain(large);
    Joined<double, double> plain = {(double)all.nans, (double)all.posinf, (double)all.neginf, (double)all.zeros, (double)all.finite,
                                    all.low, all.high, all.sum, all.squares};
    Joined<double, double> beyond = {0, 0, 0, 0, (double)large.finite, large.low, large.high, large.sum, large.squares};
    double words[PART], center = all.shift;
    over_block(plain, center);
    write_joined(words, 1, plain, center);
    join_words(both.all, both.center, words);
    __syncthreads(); /* what is shared there is used again */
    both.large = beyond; both.large_center = large.shift;
    over_block(both.large, both.large_center);
}

/* What a block has found becomes its part; the sums by the axes lie in the places. */
template <int many, int wide, typename Real>
__device__ __forceinline__ void write_part(OfWarp (&warps)[THREADS / 32], double *part, const Short<Real> &s, const Odd &odd,
                                           bool has_odd, u64 its_hash, const Places &places, float (&flat)[many], u32 first)
{
    OfWarp &mine = warps[threadIdx.x / 32];
    write_flat(mine, flat, first);
    write_axes(mine, places);
    const u64 hash = over_warp(its_hash);
    const int exponent = exponent_in(s.scale);
    double powers[3] = {(double)s.all_sizes, times_power(s.all_cubes, 3 * exponent), times_power(s.all_fourths, 4 * exponent)};
#pragma unroll
    for (int power = 0; power < 3; power++) {
        if (has_odd) powers[power] += odd.powers[power];
        powers[power] = over_warp(powers[power]);
    }
    if (threadIdx.x % 32 == 0) {
        mine.hash = hash;
        for (int power = 0; power < 3; power++) mine.powers[power] = powers[power];
    }
    Joined<Real, u32> all = {0, 0, 0, s.zeros, s.loads * wide, s.low, s.high, (double)s.sum, (double)s.squares};
    double center = s.shift;
    over_block(all, center);
    Both both = {{0, 0, 0, (double)all.zeros, (double)all.finite, all.low, all.high, all.sum, all.squares}, NOTHING, center, 0};
    if (__syncthreads_or(has_odd)) {
        Both copy = both; /* mostly it need not lie in memory */
        add_odd(copy, odd, has_odd);
        both = copy;
    }
    write_sums(part, warps);
    if (threadIdx.x == 0) {
        write_joined(part, gridDim.x, both.all, both.center);
        write_joined(part + OF_PART(PART, gridDim.x), gridDim.x, both.large, both.large_center);
    }
}

/* The sketch as the journal has it. */
struct Found { u64 hash; float flat[PRIME], axes[PRIME]; double orders[7]; long long odd; };
/* A row: nine doubles of the statistics, the sketch, and what a launch leaves for those that make it whole. */
struct Left { u64 count; u32 item, axes, wanted, blocks; const double *known; };
__device__ __forceinline__ Left &left_of(const double *row) { return *(Left *)(row + TALLY + sizeof(Found) / 8); }

/* What was wanted; the rest stays as it is. */
__device__ __forceinline__ void write_row(double *row, const double *sums, const Both &both, const Left &its)
{
    const u32 wanted = its.wanted;
    __syncthreads(); /* all sums are there */
    const u64 hash = stirred((u64)__double_as_longlong(sums[HASH]) ^ stirred(its.count * its.item));
    Found &found = *(Found *)(row + TALLY);
    if (threadIdx.x < PRIME) {
        const u32 at = threadIdx.x;
        if (wanted != ONLY_AXES) found.flat[at] = (float)sums[BY_PLACE + at];
        if (wanted != ONLY_FLAT) /* one axis is the flat order */
            found.axes[at] = its.axes > 1 ? (float)sums[BY_PLACE + PRIME + at] : found.flat[at];
    }
    if (threadIdx.x == 0 && wanted != ONLY_AXES) found.hash = hash ? hash : 1;
    if (threadIdx.x != 0 || wanted != ALL) return;
    Joined<double, double> all = both.all;
    double center = both.center, large[PART];
    const Tally tally = tally_of(all, center);
    const double sum = tally.mean * tally.finite;
    const double orders[7] = {sum, tally.squares + sum * tally.mean, sums[POWERS], sums[POWERS + 1], sums[POWERS + 2],
                              tally.finite > 0 ? tally.low : 0.0, tally.finite > 0 ? tally.high : 0.0};
    for (int at = 0; at < 7; at++) found.orders[at] = orders[at];
    found.odd = (long long)(its.count - (u64)tally.finite);
    write_joined(large, 1, both.large, both.large_center);
    join_words(all, center, large);
    const Tally whole = tally_of(all, center);
    row[0] = (double)its.count; row[1] = whole.nans; row[2] = whole.posinf; row[3] = whole.neginf; row[4] = whole.zeros;
    row[5] = whole.low; row[6] = whole.high; row[7] = whole.mean * whole.finite; row[8] = whole.squares;
}

/* ---------------------------------------------------------------- what many launches have left, joined at once */

/* Of the parts of all blocks the sums that this warp adds up: many loads at once, since each one waits for memory. */
__device__ __forceinline__ void over_columns(double *sums, const double *parts, u32 blocks)
{
    const u32 first = POWERS + threadIdx.x / 32 * COLUMNS, lane = threadIdx.x % 32;
    const bool has_hash = first + COLUMNS > HASH;
    double found[COLUMNS] = {0, 0, 0, 0, 0};
    u64 hash = 0;
#pragma unroll 2
    for (u32 each = lane; each < blocks; each += 32) {
        const double *column = parts + OF_PART(first, blocks) + each;
#pragma unroll
        for (u32 at = 0; at < COLUMNS; at++, column += blocks)
            if (!has_hash || first + at < HASH) found[at] += *column;
        if (has_hash) hash += (u64)__double_as_longlong(parts[OF_PART(HASH, blocks) + each]);
    }
#pragma unroll 1
    for (int step = 16; step; step >>= 1) {
#pragma unroll
        for (u32 at = 0; at < COLUMNS; at++) found[at] += __shfl_down_sync(~0u, found[at], step);
        hash += __shfl_down_sync(~0u, hash, step);
    }
    if (lane) return;
#pragma unroll
    for (u32 at = 0; at < COLUMNS; at++)
        if (first + at < HASH) sums[first + at] = found[at];
    if (has_hash) sums[HASH] = __longlong_as_double((long long)hash);
}

/* The row of each launch; their parts are so far apart as a slot is long. */
extern "C" __global__ void __launch_bounds__(THREADS) join_sketches(const double *slots, u64 slot, double *table, u64 width)
{
    __shared__ double sums[HASH + 1];
    const double *parts = slots + blockIdx.x * slot;
    double *row = table + blockIdx.x * width;
    const Left its = left_of(row);
    if (its.blocks == 0) return; /* there is no sketch */
    Both both = {NOTHING, NOTHING, 0, 0};
    for (u32 each = threadIdx.x; each < its.blocks; each += THREADS) {
        join_part(both.all, both.center, parts + each, its.blocks);
        join_part(both.large, both.large_center, parts + OF_PART(PART, its.blocks) + each, its.blocks);
    }
    over_columns(sums, parts, its.blocks);
    over_block(both.all, both.center);
    __syncthreads(); /* what is shared there is used again */
    over_block(both.large, both.large_center);
    write_row(row, sums, both, its);
}

/* Where only some was wanted the rest is in the row that was known, or in one that was known to that; all have been joined. */
extern "C" __global__ void __launch_bounds__(THREADS) fill_sketches(double *table, u64 width)
{
    double *row = table + blockIdx.x * width;
    const Left its = left_of(row);
    if (its.blocks == 0 || its.wanted == ALL) return;
    const double *all = row, *flat = row, *axes = row;
    while (left_of(all).wanted != ALL) all = left_of(all).known;
    while (left_of(flat).wanted == ONLY_AXES) flat = left_of(flat).known;
    while (left_of(axes).wanted == ONLY_FLAT) axes = left_of(axes).known;
    Found &found = *(Found *)(row + TALLY);
    const Found &of_all = *(const Found *)(all + TALLY), &of_flat = *(const Found *)(flat + TALLY);
    const Found &of_axes = *(const Found *)(axes + TALLY);
    const u32 at = threadIdx.x;
    if (at < TALLY) row[at] = all[at];
    if (at < 7) found.orders[at] = of_all.orders[at];
    if (at == 0) found.odd = of_all.odd;
    if (at == 0 && its.wanted == ONLY_AXES) found.hash = of_flat.hash;
    if (at < PRIME && its.wanted == ONLY_AXES) found.flat[at] = of_flat.flat[at];
    if (at < PRIME && its.wanted == ONLY_FLAT) found.axes[at] = of_axes.axes[at];
}

/* ---------------------------------------------------------------- what is found for a warp's turns, by a lane each */

enum Kind { ANY, EVEN, SHORT };
/* What is the same for all numbers that a warp takes in one turn: the factor of the hash, and of its blocks of weights whether
 * the flat order turns their sign. */
struct Turn { u64 factor; u32 turned[2]; };
/* Of numbers that stand in one row and one block of weights: where they begin, what the axes say of them, and how many. */
struct Row { long long begin; float by; u16 to, size; };
#define ROWS 32  /* that are found at once, and … */
#define TURNS 16 /* … so many turns, or … */
#define FEW 8    /* … so many of both, where the tables leave less room */

template <int kind> struct Turns { Turn turns[kind == ANY ? FEW : TURNS]; Row rows[kind == ANY ? FEW : ROWS]; };

/* How a tensor is gone through: by tiles, which have several rows where these are short, so that rows of fewer turns are found
 * at once; and, where rows are long, by their blocks of weights besides, a piece each. */
template <typename Index> struct Way { Index tiles, pieces; u32 rows, turns, pieces_a_row; };

template <int kind, typename Index> __device__ __forceinline__ Way<Index> way_through(const Order &order, u32 tile_numbers, bool has_axes)
{
    const Index size = (Index)order.axis[0].size;
    Way<Index> way = {(Index)((order.count + tile_numbers - 1) / tile_numbers), 0, 1, kind == ANY ? FEW : TURNS, 0};
    if (kind == SHORT) { way.rows = tile_numbers / (u32)size; way.turns = ROWS / way.rows; } /* both are powers of two */
    if (kind == ANY && has_axes && order.is_flat && size >= WEIGHTS / 4) {
        way.pieces_a_row = (u32)((size + WEIGHTS - 1) / WEIGHTS);
        way.pieces = (Index)(order.count / size) * way.pieces_a_row;
    }
    return way;
}

template <int blocks> __device__ __noinline__ void find_turn(Turn &turn, u64 tile, u32 tile_numbers)
{
    turn.factor = factor_of(tile);
    for (int each = 0; each < blocks; each++) turn.turned[each] = is_turned(tile * tile_numbers / WEIGHTS + each);
}

template <typename Index> __device__ __noinline__ void find_row(Row &row, const Order &order, Index number, const Fours &tables)
{
    const Rows<1, Index> its = rows_of<1>(order, number, (Index)0, tables);
    const Index block = its.at[0] / WEIGHTS;
    row.begin = order.is_flat ? (long long)number : its.above[0].begin + (long long)its.at[0];
    row.by = its.above[0].weight * sign_at(tables, block);
    row.to = (u16)((its.above[0].sum + (u32)(block % PRIME)) % PRIME);
}

template <typename Index>
__device__ __noinline__ void find_piece(Row &row, const Order &order, const Way<Index> &way, Index piece, const Fours &tables)
{
    const Index size = (Index)order.axis[0].size, which = piece / way.pieces_a_row, block = piece - which * way.pieces_a_row;
    Above above = {1.0f, 0, 0};
    take_axes(above, order, 1, which, tables);
    row.begin = (long long)(which * size + block * WEIGHTS);
    row.by = above.weight * sign_at(tables, block);
    row.to = (u16)((above.sum + (u32)(block % PRIME)) % PRIME);
    row.size = (u16)(size - block * WEIGHTS < WEIGHTS ? size - block * WEIGHTS : WEIGHTS);
}

/* For the turns that begin with this one and this tile, if it is time. */
template <int wanted, int kind, int blocks, typename Index>
__device__ __forceinline__ void find_turns(Turns<kind> &its, const Order &order, const Way<Index> &way, u32 turn, u64 tile,
                                           u32 tile_numbers, const Fours &tables)
{
    const u32 lane = threadIdx.x % 32, turns = kind == ANY ? FEW : TURNS, step = gridDim.x * (THREADS / 32);
    if (turn & (way.turns - 1)) return;
    __syncwarp();
    const u64 later = tile + (u64)lane * step;
    if (wanted != ONLY_AXES && turn % turns == 0 && lane < turns && later < way.tiles) find_turn<blocks>(its.turns[lane], later, tile_numbers);
    if (kind == ANY && lane < turns && later < way.pieces) find_piece(its.rows[lane], order, way, (Index)later, tables);
    if (kind == EVEN && lane < turns && later < way.tiles)
        for (int each = 0; each < blocks; each++)
            find_row(its.rows[lane * blocks + each], order, (Index)(later * tile_numbers + each * WEIGHTS), tables);
    if (kind == SHORT) {
        const u64 number = (tile + (u64)(lane / way.rows) * step) * tile_numbers + lane % way.rows * order.axis[0].size;
        if (number < order.count) find_row(its.rows[lane], order, (Index)number, tables);
    }
    __syncwarp();
}

/* ---------------------------------------------------------------- the kernel */

/* What the threads of a block share. */
template <int kind> struct TablesOf { typedef Fours Type; };
template <> struct TablesOf<ANY> { typedef Tables Type; };
template <int kind> struct Shared {
    union { typename TablesOf<kind>::Type tables; OfWarp warps[THREADS / 32]; };
    Places places;
    Turns<kind> turns[THREADS / 32];
    Order order; /* by a place of its own: functions that are called may not have those of the kernel */
};
/* What one thread has found. */
template <typename Real, int many> struct Mine { Short<Real> s; float flat[many]; u64 hashes; bool has_begun, has_odd; };

/* One of the long rows' blocks of weights: a lane takes each 32nd number, which all belong to the same sum. */
#define AT_ONCE 16
template <typename Real, typename Raw, typename Read>
__device__ __forceinline__ void add_piece(float *mine, const Raw *data, const Row &piece, const Tables &tables, const Read &read)
{
    const u32 lane = threadIdx.x % 32;
    const Raw *from = data + piece.begin + lane;
    const float *weights = &tables.each[LIES(lane)];
    Real sum = 0;
#pragma unroll 1
    for (int first = 0; first < piece.size; first += AT_ONCE * 32) {
        const int left = (int)piece.size - first - (int)lane;
        Raw raw[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) raw[k] = 32 * k < left ? from[first + 32 * k] : (Raw)0;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const Real x = (Real)read(raw[k]);
            if (magnitude(x) <= (Real)LARGEST) sum += x * (Real)weights[LIES(first) + LIES(32 * k)];
        }
    }
    mine[(piece.to + lane % LANES) * THREADS] += (float)sum * piece.by;
}

template <int kind> __device__ __forceinline__ void copy_tables(Shared<kind> &shared)
{
    for (u32 at = threadIdx.x; at < sizeof(shared.tables) / 16; at += THREADS)
        ((uint4 *)&shared.tables)[at] = ((const uint4 *)&TABLES)[at];
    __syncthreads();
}

/* What a warp finds in its tiles, each thread its own numbers. */
template <int wanted, int kind, typename Index, typename Raw, typename Real, int many, typename Read>
__device__ __forceinline__ void take_tiles(Mine<Real, many> &mine, Odd &odd, const Raw *data, Shared<kind> &shared, const Read &read)
{
    const int wide = 16 / sizeof(Raw), blocks = wide == LANES ? 2 : 1, parts = QUARTERS / blocks; /* a tile has blocks of weights */
    const u32 lane = threadIdx.x % 32, apart = 32 * wide, tile_numbers = QUARTERS * apart;
    const Order &order = shared.order;
    const auto &tables = shared.tables;
    const bool is_whole = order.is_whole && ((u64)data & 15) == 0, has_axes = order.axes > 1 && wanted != ONLY_FLAT;
    const Way<Index> way = way_through<kind, Index>(order, tile_numbers, has_axes);
    const Index whole = is_whole ? (Index)(order.count / tile_numbers) : 0; /* tiles that are read sixteen bytes at a time */
    const bool by_load = kind == ANY && has_axes && !way.pieces, in_rows = kind == SHORT && has_axes;
    Turns<kind> &found = shared.turns[threadIdx.x / 32];
    Short<Real> &s = mine.s;
    float *my_axes = &shared.places[0][threadIdx.x];
    /* Short rows: where a thread's numbers stand in theirs is always the same. */
    const u32 size = (u32)order.axis[0].size, inner = kind == SHORT ? lane * wide % size : 0;
    const Row *my_rows = kind == SHORT ? &found.rows[lane * wide / size] : found.rows;
    float in_row[wide];
    Rows<QUARTERS, Index> rows; /* where they are found for each load */

    auto row_at = [&](u32 slot, int q) -> const Row & {
        return kind == SHORT ? my_rows[slot * way.rows + q * (way.rows / QUARTERS)] : my_rows[slot * blocks + q / parts];
    };
    auto load = [&](uint4 (&loaded)[QUARTERS], u32 slot, Index which) {
#pragma unroll
        for (int q = 0; q < QUARTERS; q++) {
            long long at = (long long)(which * tile_numbers + q * apart + lane * wide);
            if (kind == EVEN && !order.is_flat) at = row_at(slot, q).begin + q % parts * apart + lane * wide;
            if (kind == SHORT && !order.is_flat) at = row_at(slot, q).begin + inner;
            if (kind == ANY && !order.is_flat) at = rows.above[q].begin + (long long)rows.at[q];
            loaded[q] = *(const uint4 *)(data + at);
        }
    };
    auto begin_with = [&](const uint4 &now, int have) {
        const Begun<Real> begun = begun_with<Raw, Real>(now, have, read);
        s.shift = begun.shift; s.scale = scale_of(begun.exponent, (Real)0);
        mine.has_begun = begun.has;
    };
    /* What was weighed of a block of weights; rows that are whole ones have the same for the axes. */
    auto add_weighed = [&](const Real (&weighed)[wide], int block, const Turn &turn, const Row &row) {
        const float sign = turn.turned[block] ? -1.0f : 1.0f;
#pragma unroll
        for (int k = 0; k < wide; k++) mine.flat[k + block] += (float)weighed[k] * sign;
        if (kind == EVEN && has_axes) add_lanes(my_axes, row.to + lane * wide % LANES, row.by, weighed);
    };
    auto count_zeros = [&](const uint4 (&loaded)[QUARTERS]) {
#pragma unroll
        for (int q = 0; q < QUARTERS; q++) {
            Real x[wide];
            unpack<Raw>(x, loaded[q], read);
#pragma unroll
            for (int k = 0; k < wide; k++) s.zeros += x[k] == (Real)0;
        }
    };
    /* All of a tile at once; false, and nothing is done, where one is not plain. */
    auto take_tile = [&](const uint4 (&loaded)[QUARTERS], Index which, const Turn &turn, const Row (&its)[QUARTERS]) {
        Short<Real> now = s;
        Real one = 0, two = 0, sizes = 0, cubes = 0, fourths = 0, weighed[blocks][wide];
        u64 hash = 0;
        bool have_zero = false;
#pragma unroll
        for (int k = 0; k < blocks * wide; k++) weighed[k / wide][k % wide] = 0;
#pragma unroll
        for (int q = 0; q < QUARTERS; q++) {
            Real x[wide];
            float by[wide];
            unpack<Raw>(x, loaded[q], read);
            if (wanted == ALL) {
#pragma unroll
                for (int k = 0; k < wide; k++) {
                    const Real d = x[k] - s.shift, y = scaled(x[k], s.scale), yy = y * y;
                    one += d; two += d * d; sizes += magnitude(x[k]); cubes += yy * y; fourths += yy * yy;
                }
                have_zero |= add_ends(now, x, loaded[q], read);
            }
            if (wanted == ONLY_AXES) continue;
            const ulonglong2 key = *(const ulonglong2 *)&tables.keys[2 * (q * 32 + lane)];
            hash += hashed((u64)loaded[q].y << 32 | loaded[q].x, key.x) + hashed((u64)loaded[q].w << 32 | loaded[q].z, key.y);
            weights_at(by, tables, ((u32)which * tile_numbers + q * apart + lane * wide) % WEIGHTS);
#pragma unroll
            for (int k = 0; k < wide; k++) weighed[q / parts][k] += x[k] * (Real)by[k];
        }
        if (wanted == ALL && (!(is_plain(one) && is_plain(two) && has_room(fourths)) || is_lost(one, two))) return false; /* also if NaN */
        if (wanted != ALL && !are_fine<wide, Raw, Real>(loaded, read)) return false;
        if (wanted == ALL) {
            now.one += one; now.two += two; now.sizes += sizes; now.cubes += cubes; now.fourths += fourths;
            now.loads += QUARTERS;
            s = now;
        }
        mine.hashes += hash * turn.factor;
        if (wanted != ONLY_AXES)
#pragma unroll
            for (int block = 0; block < blocks; block++) add_weighed(weighed[block], block, turn, its[block * parts]);
        if (have_zero) count_zeros(loaded);
#pragma unroll
        for (int q = 0; q < QUARTERS; q++) {
            if (!by_load && !in_rows) continue;
            Real x[wide];
            unpack<Raw>(x, loaded[q], read);
            if constexpr (kind == ANY)
                if (by_load) add_axes(my_axes, order, rows, q, x, tables);
            if (!in_rows) continue;
#pragma unroll
            for (int k = 0; k < wide; k++) x[k] *= (Real)in_row[k];
            add_lanes(my_axes, its[q].to + inner % LANES, its[q].by, x);
        }
        return true;
    };
    /* One load after the other: what is not plain, what is not side by side, and the end. */
    auto take_loads = [&](Index which, const Turn &turn, const Row (&its)[QUARTERS]) {
        Real weighed[wide];
        u64 hash = 0;
#pragma unroll
        for (int k = 0; k < wide; k++) weighed[k] = 0;
#pragma unroll 1
        for (int q = 0; q < QUARTERS; q++) {
            const Index number = which * tile_numbers + q * apart + lane * wide;
            const uint4 now = which < whole && order.is_flat ? *(const uint4 *)(data + number) : gathered(data, order, number, tables);
            const int have = there(order, number, wide);
            Real x[wide];
            if (!mine.has_begun) begin_with(now, have);
            unpack<Raw>(x, now, read);
            const ulonglong2 key = *(const ulonglong2 *)&tables.keys[2 * (q * 32 + lane)];
            if (have > 0) hash += hashed((u64)now.y << 32 | now.x, key.x);
            if (have * (int)sizeof(Raw) > 8) hash += hashed((u64)now.w << 32 | now.z, key.y);
            if (wanted == ALL && have > 0) add_numbers(s, odd, mine.has_odd, x, now, have, read);
            else
#pragma unroll
                for (int k = 0; k < wide; k++) x[k] = magnitude(x[k]) <= (Real)LARGEST ? x[k] : (Real)0;
            float by[wide];
            weights_at(by, tables, (u32)number % WEIGHTS);
#pragma unroll
            for (int k = 0; k < wide; k++) weighed[k] += x[k] * (Real)by[k];
            if (by_load || in_rows) {
                Real each[wide]; /* a copy: what is often need not lie in memory */
#pragma unroll
                for (int k = 0; k < wide; k++) each[k] = x[k];
                add_axes_each(my_axes, order, number, each, have, tables);
            }
            if ((q + 1) % parts) continue;
            if (blocks == 1) add_weighed(weighed, 0, turn, its[0]);
            else add_weighed(weighed, q / parts, turn, q < parts ? its[0] : its[parts % QUARTERS]);
#pragma unroll
            for (int k = 0; k < wide; k++) weighed[k] = 0;
        }
        mine.hashes += hash * turn.factor;
    };

    const Index step = gridDim.x * (THREADS / 32), last = way.pieces > way.tiles ? way.pieces : way.tiles;
    Index tile = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    uint4 ahead[QUARTERS]; /* under way while others are looked at: so the memory is never idle */
    if (kind != ANY && order.is_flat && tile < whole) load(ahead, 0, tile);
    copy_tables(shared);
    if (kind == SHORT && wanted != ONLY_FLAT) weights_at(in_row, tables, inner);
    find_turns<wanted, kind, blocks>(found, order, way, 0, tile, tile_numbers, tables);
    if (kind != ANY && !order.is_flat && tile < whole) load(ahead, 0, tile);
    for (u32 number = 0; tile < last; number++, tile += step) {
        const u32 slot = number & (way.turns - 1), next = (number + 1) & (way.turns - 1);
        const Turn turn = found.turns[number % (kind == ANY ? FEW : TURNS)];
        Row its[QUARTERS];
        uint4 loaded[QUARTERS];
#pragma unroll
        for (int q = 0; q < QUARTERS; q++) {
            its[q] = kind == ANY ? my_rows[slot] : row_at(slot, q);
            loaded[q] = ahead[q];
        }
        find_turns<wanted, kind, blocks>(found, order, way, number + 1, tile + (u64)step, tile_numbers, tables);
        if (kind != ANY && tile + (u64)step < whole) load(ahead, next, tile + step);
        if constexpr (kind == ANY)
            if (tile < way.pieces) add_piece<Real>(my_axes, data, its[0], tables, read);
        if (tile >= way.tiles || (wanted == ONLY_AXES && way.pieces)) continue;
        bool is_done = false;
        if (tile < whole) {
            if (kind == ANY) {
                if (by_load || !order.is_flat) rows = rows_of<QUARTERS>(order, (Index)(tile * tile_numbers + lane * wide), (Index)apart, tables);
                load(loaded, slot, tile);
            }
            if (wanted == ALL && !mine.has_begun)
#pragma unroll
                for (int q = 0; q < QUARTERS; q++)
                    if (!mine.has_begun) begin_with(loaded[q], wide);
            is_done = take_tile(loaded, tile, turn, its);
        }
        if (!is_done) take_loads(tile, turn, its);
        if (wanted == ALL && number % SHORT_TILES == SHORT_TILES - 1) drain(s);
    }
}

template <int kind, typename Raw, typename Real, typename Index, typename Read>
__device__ __forceinline__ void sketch(const Raw *data, const Order &given, u32 asked, const double *known, double *parts,
                                       double *row, Read read)
{
    const u32 wanted = kind == EVEN || given.axes == 1 ? ALL : asked; /* what is known besides would save little there */
    const int wide = 16 / sizeof(Raw), many = wide + (wide == LANES); /* a tile of bytes is two blocks, whose sums follow one another */
    __shared__ Shared<kind> shared;
    const Order &order = shared.order;
    if (threadIdx.x < sizeof(Order) / 4) ((u32 *)&shared.order)[threadIdx.x] = ((const u32 *)&given)[threadIdx.x];
    for (u32 at = 0; at < PLACES; at++) shared.places[at][threadIdx.x] = 0;
    __syncthreads();

    Mine<Real, many> mine = {{0, scale_of(exponent_of((Real)0), (Real)0), (Real)INFINITE, (Real)-INFINITE}};
    Odd odd;
    begin_ends(mine.s, read);
    mine.has_begun = wanted != ALL;
    if (wanted == ALL) take_tiles<ALL, kind, Index>(mine, odd, data, shared, read);
    else if (kind != EVEN && wanted == ONLY_AXES) take_tiles<ONLY_AXES, kind, Index>(mine, odd, data, shared, read);
    else if (kind != EVEN) take_tiles<ONLY_FLAT, kind, Index>(mine, odd, data, shared, read);
    drain(mine.s);
    join_ends(mine.s, read);
    __syncthreads(); /* nobody wants the tables any more */
    const u32 begin = (blockIdx.x * (THREADS / 32) + threadIdx.x / 32) * (u32)(QUARTERS * 32 * wide) + threadIdx.x % 32 * wide;
    write_part<many, wide>(shared.warps, parts + blockIdx.x, mine.s, odd, mine.has_odd, mine.hashes, shared.places, mine.flat,
                           (begin % LANES + begin / WEIGHTS) % PRIME);
    if (blockIdx.x == 0 && threadIdx.x == 0) left_of(row) = {order.count, (u32)sizeof(Raw), order.axes, wanted, gridDim.x, known};
}

#define SKETCH_BY(PREFIX, NAME, INDEX, KIND) \
extern "C" __global__ void __launch_bounds__(THREADS, 2) PREFIX##_##NAME(const NAME##_numbers::Raw *data, \
    const Order order, u32 wanted, const double *known, double *parts, double *row) \
{ sketch<KIND, NAME##_numbers::Raw, NAME##_numbers::Real, INDEX>(data, order, wanted, known, parts, row, NAME##_numbers()); }
#define EVEN_SKETCH(NAME) SKETCH_BY(even_sketch, NAME, u32, EVEN)
#define SHORT_SKETCH(NAME) SKETCH_BY(short_sketch, NAME, u32, SHORT)
#define SKETCH(NAME) SKETCH_BY(sketch, NAME, u32, ANY)
#define LARGE_SKETCH(NAME) SKETCH_BY(large_sketch, NAME, u64, ANY)
