/* By what the numbers of one tensor are known again (sketch.py is the definition), and its statistics in the same pass;
 * it stands behind statistics.cu.
 *
 * Numbers are taken in their logical order. A warp takes the 2,048 bytes that are hashed together: of each quarter a thread
 * has sixteen. Blocks are a multiple of seventeen where a warp takes more than one tile: then a thread's numbers belong to the
 * same sums of the flat order each time, which stay in registers. Sums by the axes stay in shared memory, each thread's own,
 * and all are joined in a fixed order.
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
#define POWERS (2 * TALLY)            /* of a part, behind the statistics and those of numbers that are too large: |x|, x³, x⁴, … */
#define BY_PLACE (POWERS + 3)         /* … both kinds of sums by place, … */
#define HASH (BY_PLACE + 2 * PRIME)   /* … and the hash */
#define COLUMNS 6 /* of the parts, that a warp joins at once */

/* An axis of more than one number, the innermost first; n / size is (n * magic >> 32) + n >> shift, below 2**31. */
struct Axis { u64 size; u32 magic, shift; long long step; };
struct Order { u64 count; u32 axes, is_flat, is_whole, is_small; Axis axis[MOST_AXES]; };
/* What is wanted: all; of numbers whose row is known, where the flat order is the same, only the sums by axes; and where they
 * are on the same axes in another order, only what the flat order gives. */
enum Wanted { ALL, ONLY_AXES, ONLY_FLAT };
/* Where numbers stand is an Index: u32, or u64 where there are more of them than 2**31. */

__device__ __forceinline__ u64 stirred(u64 counter)
{
    u64 z = (counter + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}
__device__ __forceinline__ float weight_of(u32 at)
{
    u64 z = stirred(at);
    float size = 0.5f + (float)(u32)(z >> 41) * 1.1920928955078125e-07f;
    return z & 1 ? -size : size;
}
/* They lie so that threads which read each the eighth one do not wait for one another; and once more by fours, each second
 * four apart, for threads that read neighbours at once. */
#define LIES(AT) ((AT) + (AT) / 8)
#define FOUR(AT) ((AT) / 4 % 2 * (WEIGHTS / 8 + 4) + (AT) / 8)
#define SIGNS 64 /* of blocks of weights that are at hand */
struct Weights { float each[LIES(WEIGHTS)]; float4 fours[WEIGHTS / 4 + 4]; float signs[SIGNS]; };
template <int wide> __device__ __forceinline__ void weights_at(float (&found)[wide], const Weights &weights, u32 at)
{
    if (wide < 4) {
#pragma unroll
        for (int k = 0; k < wide; k++) found[k] = weights.each[LIES(at) + k];
    } else {
#pragma unroll
        for (int k = 0; k < wide; k += 4) {
            const float4 four = weights.fours[FOUR(at + k)];
            found[k] = four.x; found[k + 1] = four.y; found[k + 2] = four.z; found[k + 3] = four.w;
        }
    }
}
__device__ __noinline__ float sign_of(u64 block) { return block && stirred(WEIGHTS + block) & 1 ? -1.0f : 1.0f; }
template <typename Index> __device__ __forceinline__ float sign_at(const Weights &weights, Index block)
{
    return block < SIGNS ? weights.signs[block] : sign_of(block);
}

__device__ __forceinline__ u64 hashed(u64 word, u64 key)
{
    word ^= key;
    u64 product = (u64)(u32)word * (u32)(word >> 32);
    return (product << 32 | product >> 32) + (word ^ key);
}
__device__ __forceinline__ u64 key_of(u32 at) { return stirred((1ull << 32) + at); }
__device__ __forceinline__ u64 factor_of(u64 tile) { return stirred((2ull << 32) + tile) | 1; }

/* Numbers that are not in the sketch, but in the statistics. */
struct Large { Sums<double> sums; bool settled; };

/* Of one thread. Powers are those of numbers without this exponent, so that they fit: it grows as larger ones come. */
template <typename Real> struct Sketched {
    Sums<Real> sums;
    bool settled;
    int exponent;
    Real sizes, cubes, fourths;
    double powers[3];
    u64 hash;
};
__device__ __forceinline__ float magnitude(float x) { return fabsf(x); }
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }
__device__ __forceinline__ int exponent_of(float x)
{
    int found = (int)(__float_as_uint(x) >> 23 & 255) - 127;
    return found < -120 ? -120 : found > 88 ? 88 : found;
}
__device__ __forceinline__ int exponent_of(double) { return 0; }
__device__ __forceinline__ bool is_lowest(int exponent, float) { return exponent == -120; }
__device__ __forceinline__ bool is_lowest(int, double) { return false; }
__device__ __forceinline__ float without(float x, int exponent) { return x * __uint_as_float((u32)(127 - exponent) << 23); }
__device__ __forceinline__ double without(double x, int) { return x; }
__device__ __forceinline__ bool has_room(float fourths) { return fourths < 1e10f; } /* also: none is larger than 2**98 */
__device__ __forceinline__ bool has_room(double fourths) { return fourths < 1e100; }
__device__ __forceinline__ double times_power(double x, int exponent) { return x * __longlong_as_double((1023ll + exponent) << 52); }

template <typename Real> __device__ __forceinline__ void drain_powers(Sketched<Real> &t)
{
    t.powers[0] += t.sizes;
    t.powers[1] += times_power(t.cubes, 3 * t.exponent);
    t.powers[2] += times_power(t.fourths, 4 * t.exponent);
    t.sizes = t.cubes = t.fourths = 0;
}

/* Seldom: called, it leaves the registers to what is often. */
__device__ __noinline__ void add_large(Sums<double> &large, double x, bool &has_large)
{
    settle(large, x, has_large);
    add(large, x);
}

/* One number; 0 where it is not to be summed by place. */
template <typename Real> __device__ __forceinline__ Real add_one(Sketched<Real> &t, Large &large, Real x)
{
    if (!(magnitude(x) <= (Real)LARGEST)) {
        if (x - x != (Real)0) { add(t.sums, x); return 0; }
        add_large(large.sums, (double)x, large.settled);
        return 0;
    }
    add(t.sums, x);
    Real y = without(x, t.exponent);
    if (magnitude(y) > (Real)256 && exponent_of(x) > t.exponent) {
        drain_powers(t);
        t.exponent = exponent_of(x);
        y = without(x, t.exponent);
    }
    t.sizes += magnitude(x); t.cubes += y * y * y; t.fourths += y * y * y * y;
    return x;
}

/* Seldom, too: it is given copies, so that what is often need not lie in memory. */
template <typename Real> __device__ __noinline__ void add_each(Sketched<Real> &t, Large &large, Real *x, int have)
{
    for (int k = 0; k < have; k++) x[k] = add_one(t, large, x[k]);
}

/* The numbers of one load, together: as good as all are plain; `have` of them are there. */
template <int wide, typename Real>
__device__ __forceinline__ void add_numbers(Sketched<Real> &t, Large &large, Real (&x)[wide], int have)
{
    if (!t.settled)
#pragma unroll
        for (int k = 0; k < wide; k++)
            if (k < have && magnitude(x[k]) <= (Real)LARGEST) settle(t.sums, x[k], t.settled);
    if (is_lowest(t.exponent, x[0])) /* only zeros until now: nothing was summed without it */
#pragma unroll
        for (int k = 0; k < wide; k++)
            if (k < have && magnitude(x[k]) <= (Real)LARGEST && exponent_of(x[k]) > t.exponent) t.exponent = exponent_of(x[k]);
    Real one = 0, two = 0, sizes = 0, cubes = 0, fourths = 0, product = 1;
#pragma unroll
    for (int k = 0; k < wide; k++) {
        Real d = x[k] - t.sums.shift, y = without(x[k], t.exponent), yy = y * y;
        one += d; two += d * d; sizes += magnitude(x[k]); cubes += yy * y; fourths += yy * yy; product *= y;
    }
    if (have < wide || !(is_plain(one) && is_plain(two) && has_room(fourths)) || is_lost(one, two)) { /* also if it is NaN */
        Sketched<Real> copy = t;
        Real each[wide];
#pragma unroll
        for (int k = 0; k < wide; k++) each[k] = x[k];
        add_each(copy, large, each, have);
#pragma unroll
        for (int k = 0; k < wide; k++) x[k] = each[k];
        t = copy;
        return;
    }
    t.sums.one += one; t.sums.two += two; t.sums.finite += wide;
    t.sizes += sizes; t.cubes += cubes; t.fourths += fourths;
    if (product == (Real)0) /* else none of them is */
#pragma unroll
        for (int k = 0; k < wide; k++) t.sums.zeros += x[k] == (Real)0;
#pragma unroll
    for (int k = 0; k < wide; k++) {
        t.sums.low = smaller(x[k], t.sums.low);
        t.sums.high = larger(x[k], t.sums.high);
    }
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

template <typename Index> __device__ __forceinline__ void weigh(float &weight, u32 &sum, Index at, const Weights &weights)
{
    weight *= weights.each[LIES((u32)at % WEIGHTS)];
    sum += (u32)at % LANES;
    if (at >= WEIGHTS) { weight *= sign_at(weights, at / WEIGHTS); sum += (u32)(at / WEIGHTS) % PRIME; }
}

/* What axes say of a row: its weight and sum, and where it begins. */
struct Above { float weight; u32 sum; long long begin; };

/* One axis more; what is left for those above it. */
template <typename Index>
__device__ __forceinline__ Index take_axis(Above &row, const Order &order, int axis, Index rest, const Weights &weights)
{
    const Axis &its = order.axis[axis];
    const Index next = divided(its, rest), at = axis + 1 < (int)order.axes ? rest - next * (Index)its.size : rest;
    weigh(row.weight, row.sum, at, weights);
    if (!order.is_flat) row.begin += (long long)at * its.step;
    return next;
}

template <typename Index>
__device__ __forceinline__ void take_axes(Above &row, const Order &order, int first, Index rest, const Weights &weights)
{
#pragma unroll 1
    for (int axis = first; axis < (int)order.axes; axis++) rest = take_axis(row, order, axis, rest, weights);
}
template <typename Index>
__device__ __noinline__ void take_axes_apart(Above &row, const Order &order, int first, Index rest, const Weights &weights)
{
    take_axes(row, order, first, rest, weights);
}

/* Of numbers that each begin some more: where they stand in their rows, and what the axes but the innermost say of these.
 * Mostly the axes from the third on say the same of all. */
template <int many, typename Index> struct Rows {
    Index at[many], number[many];
    Above above[many];
};
template <int many, typename Index>
__device__ __forceinline__ Rows<many, Index> rows_of(const Order &order, Index first, Index apart, const Weights &weights)
{
    Rows<many, Index> found;
    Index rest[many];
#pragma unroll
    for (int k = 0; k < many; k++) {
        const Index number = first + k * apart;
        rest[k] = found.number[k] = divided(order.axis[0], number);
        found.at[k] = number - rest[k] * (Index)order.axis[0].size;
        found.above[k] = {1.0f, 0, 0};
        if (order.axes > 1) rest[k] = take_axis(found.above[k], order, 1, rest[k], weights);
    }
    if (order.axes <= 2) return found;
    if (rest[0] == rest[many - 1]) {
        Above above = {1.0f, 0, 0};
        take_axes(above, order, 2, rest[0], weights);
#pragma unroll
        for (int k = 0; k < many; k++) {
            found.above[k].weight *= above.weight; found.above[k].sum += above.sum; found.above[k].begin += above.begin;
        }
        return found;
    }
#pragma unroll
    for (int k = 0; k < many; k++) {
        Above above = found.above[k];
        take_axes_apart(above, order, 2, rest[k], weights);
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
    mine += first % PRIME * THREADS;
#pragma unroll
    for (int k = 0; k < wide; k++) before[k] = mine[k * THREADS];
#pragma unroll
    for (int k = 0; k < wide; k++) mine[k * THREADS] = before[k] + (float)weighed[k] * by;
}

/* Numbers of several rows, or of a row's end. */
template <typename Real, typename Index>
__device__ __noinline__ void add_axes_each(float *mine, const Order &order, Index number, const Real *x, int have, const Weights &weights)
{
    Rows<1, Index> row = rows_of<1>(order, number, (Index)0, weights);
    for (int k = 0; k < have; k++, row.at[0]++) {
        if (row.at[0] == (Index)order.axis[0].size) row = rows_of<1>(order, (Index)(number + k), (Index)0, weights);
        float weight = row.above[0].weight;
        u32 sum = row.above[0].sum;
        weigh(weight, sum, row.at[0], weights);
        mine[sum % PRIME * THREADS] += (float)(x[k] * (Real)weight);
    }
}

/* Sums by the axes, of numbers that stand in the rows' one with this number. */
template <int wide, int many, typename Real, typename Index>
__device__ __forceinline__ void add_axes(float *mine, const Order &order, const Rows<many, Index> &rows, int which,
                                         const Real (&x)[wide], const Weights &weights)
{
    const Index at = rows.at[which], block = at / WEIGHTS;
    const u32 inner = (u32)at % WEIGHTS;
    if (at + wide <= (Index)order.axis[0].size && inner + wide <= WEIGHTS) { /* all in one row, and one block of weights */
        const u32 first = (rows.above[which].sum + (u32)block) % PRIME;
        const float by = rows.above[which].weight * sign_at(weights, block);
        if (inner % wide == 0) {
            Real weighed[wide];
            float its[wide];
            weights_at(its, weights, inner);
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
            mine[(inner + k) % LANES * THREADS] = before[k] + (float)(x[k] * (Real)weights.each[LIES(inner + k)]) * by;
        return;
    }
    Real each[wide];
#pragma unroll
    for (int k = 0; k < wide; k++) each[k] = x[k];
    add_axes_each(mine, order, rows.number[which] * (Index)order.axis[0].size + at, each, wide, weights);
}

/* How many of the numbers of a load are there. */
template <typename Index> __device__ __forceinline__ int there(const Order &order, Index number, int wide)
{
    return number + (u64)wide <= order.count ? wide : number < order.count ? (int)(order.count - number) : 0;
}

/* Sixteen bytes in the logical order that are not side by side, or not all there: what is not as 0. */
template <typename Raw, typename Index, int wide = 16 / sizeof(Raw)>
__device__ __noinline__ uint4 gathered(const Raw *data, const Order &order, Index number, const Weights &weights)
{
    const int have = there(order, number, wide);
    Rows<1, Index> row = {};
    if (!order.is_flat && have) row = rows_of<1>(order, number, (Index)0, weights);
    if (order.is_flat) row.above[0].begin = (long long)number;
    uint4 found = {0, 0, 0, 0};
    Raw raw[wide];
#pragma unroll 1
    for (int k = 0; k < wide; k++, row.at[0]++) {
        if (!order.is_flat && k < have && row.at[0] == (Index)order.axis[0].size)
            row = rows_of<1>(order, (Index)(number + k), (Index)0, weights);
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
#define OF_PART(AT) ((u64)(AT) * gridDim.x)

__device__ __forceinline__ void write_tally(double *to, const Tally &t)
{
    const double words[TALLY] = {t.nans, t.posinf, t.neginf, t.zeros, t.low, t.high, t.finite, t.mean, t.squares};
#pragma unroll
    for (int at = 0; at < TALLY; at++) to[OF_PART(at)] = words[at];
}

/* The seventeen sums of all threads. */
__device__ __noinline__ void write_places(double *part, const Places &places)
{
    const u32 lane = threadIdx.x % 32;
    for (u32 column = threadIdx.x / 32; column < PRIME; column += THREADS / 32) {
        double sum = 0;
        for (u32 row = column; row < PLACES; row += PRIME)
#pragma unroll
            for (u32 each = 0; each < THREADS; each += 32) sum += places[row][each + lane];
        sum = over_warp(sum);
        if (lane == 0) part[OF_PART(column)] = sum;
    }
}

/* What a block has found becomes its part; the sums by the axes have to lie in the places, those of the flat order come there. */
template <int wide, typename Real>
__device__ __forceinline__ void write_part(double *part, const Sketched<Real> &t, const Sums<double> &large, Places &places,
                                           const float (&flat)[wide], u32 first, u32 wanted)
{
    __shared__ double powers[3][THREADS / 32];
    __shared__ u64 hashes[THREADS / 32];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Tally tally, apart = {0, 0, 0, 0, INFINITE, -INFINITE, 0, 0, 0};
    if (wanted == ALL) {
        const Sums<Real> copy = t.sums;
        tally = over_threads(copy);
        if (__syncthreads_or(large.finite != 0)) apart = over_threads(large);
        double sums[3];
#pragma unroll
        for (int power = 0; power < 3; power++) sums[power] = over_warp(t.powers[power]);
        for (int power = 0; power < 3 && lane == 0; power++) powers[power][warp] = sums[power];
    }
    u64 hash = over_warp(t.hash);
    if (lane == 0) hashes[warp] = hash;
    __syncthreads();
    write_places(part + OF_PART(BY_PLACE + PRIME), places);
    __syncthreads();
    for (u32 at = 0; at < PLACES; at++) places[at][threadIdx.x] = 0;
#pragma unroll
    for (int k = 0; k < wide; k++) places[(first + k) % PRIME][threadIdx.x] = flat[k];
    __syncthreads();
    write_places(part + OF_PART(BY_PLACE), places);
    if (threadIdx.x == 0) {
        write_tally(part, tally);
        write_tally(part + OF_PART(TALLY), apart);
        for (int power = 0; power < 3; power++) {
            double sum = 0;
            for (int each = 0; each < THREADS / 32; each++) sum += powers[power][each];
            part[OF_PART(POWERS + power)] = sum;
        }
        u64 all = 0;
        for (int each = 0; each < THREADS / 32; each++) all += hashes[each];
        part[OF_PART(HASH)] = __longlong_as_double((long long)all);
    }
    __threadfence();
    __syncthreads();
}

/* Numbers of all parts that follow one another, summed by one warp: some at once, since each load waits for memory. */
__device__ __forceinline__ void over_columns(const double *parts, u32 first, double (&sums)[COLUMNS])
{
#pragma unroll
    for (int at = 0; at < COLUMNS; at++) sums[at] = 0;
#pragma unroll 4
    for (u32 each = threadIdx.x % 32; each < gridDim.x; each += 32)
#pragma unroll
        for (int at = 0; at < COLUMNS; at++)
            if (first + at < HASH) sums[at] += __ldcg(parts + OF_PART(first + at) + each);
#pragma unroll
    for (int at = 0; at < COLUMNS; at++) sums[at] = over_warp(sums[at]);
}

/* Of finite numbers, with others. */
__device__ __forceinline__ void join(Tally &t, const Tally &o)
{
    if (o.finite == 0) return;
    const double both = t.finite + o.finite, apart = o.mean - t.mean, share = o.finite / both;
    t.low = smaller(t.low, o.low); t.high = larger(t.high, o.high);
    t.mean += apart * share;
    t.squares += o.squares + apart * apart * (t.finite * share);
    t.finite = both;
}

/* The sketch as the journal has it. */
struct Found { u64 hash; float flat[PRIME], axes[PRIME]; double orders[7]; long long odd; };

/* A row: nine doubles of the statistics, and the sketch; where not all is wanted the rest is there. */
__device__ void write_row(double *row, const Order &order, const double *sums, u64 hash, Tally all,
                          const Tally &large, u32 wanted)
{
    Found &found = *(Found *)(row + TALLY);
    if (threadIdx.x < PRIME) {
        const u32 at = threadIdx.x;
        if (wanted != ONLY_AXES) found.flat[at] = (float)sums[BY_PLACE + at];
        if (wanted != ONLY_FLAT) /* one axis is the flat order */
            found.axes[at] = order.axes > 1 ? (float)sums[BY_PLACE + PRIME + at] : found.flat[at];
    }
    if (threadIdx.x == 0 && wanted != ONLY_AXES) found.hash = hash ? hash : 1;
    if (threadIdx.x != 0 || wanted != ALL) return;
    double sum = all.mean * all.finite;
    double orders[7] = {sum, all.squares + sum * all.mean, sums[POWERS], sums[POWERS + 1], sums[POWERS + 2],
                        all.finite > 0 ? all.low : 0.0, all.finite > 0 ? all.high : 0.0};
    for (int at = 0; at < 7; at++) found.orders[at] = orders[at];
    found.odd = (long long)(order.count - (u64)all.finite);
    join(all, large);
    row[0] = (double)order.count; row[1] = all.nans; row[2] = all.posinf; row[3] = all.neginf; row[4] = all.zeros;
    row[5] = all.low; row[6] = all.high; row[7] = all.mean * all.finite; row[8] = all.squares;
}

/* The last block to end joins the parts. */
__device__ __noinline__ void join_parts(const double *parts, u64 bytes, const Order &order, double *row, u32 wanted,
                                        const double *known)
{
    __shared__ double sums[HASH + COLUMNS];
    __shared__ u64 hash;
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Tally all, large = {0, 0, 0, 0, INFINITE, -INFINITE, 0, 0, 0};
    if (wanted == ALL) {
        all = over_parts(parts, gridDim.x, 1);
        bool has_large = false;
        for (u32 each = threadIdx.x; each < gridDim.x; each += THREADS)
            has_large |= __ldcg(parts + OF_PART(TALLY + 6) + each) != 0;
        if (__syncthreads_or(has_large)) large = over_parts(parts + OF_PART(TALLY), gridDim.x, 1);
    }
    if (warp == 7) {
        u64 all = 0;
#pragma unroll 8
        for (u32 each = lane; each < gridDim.x; each += 32) all += (u64)__double_as_longlong(__ldcg(parts + OF_PART(HASH) + each));
        all = over_warp(all);
        if (lane == 0) hash = all;
    }
    for (u32 first = POWERS + warp * COLUMNS; first < HASH; first += 8 * COLUMNS) {
        double found[COLUMNS];
        over_columns(parts, first, found);
        for (int at = 0; at < COLUMNS && lane == 0; at++) sums[first + at] = found[at];
    }
    if (wanted != ALL && threadIdx.x < TALLY + sizeof(Found) / 8) row[threadIdx.x] = known[threadIdx.x];
    __syncthreads();
    write_row(row, order, sums, stirred(hash ^ stirred(bytes)), all, large, wanted);
}

/* ---------------------------------------------------------------- the kernel */

template <typename Raw, typename Real, typename Index, typename Read>
__device__ void sketch(const Raw *data, const Order &given, u32 wanted, const double *known, double *parts, u32 *ended,
                       double *row, Read read)
{
    const int wide = 16 / sizeof(Raw);
    __shared__ Weights weights;
    __shared__ Places places;
    __shared__ ulonglong2 keys[QUARTERS * 32];
    __shared__ Order order; /* by a place of its own: functions that are called may not have those of the kernel */
    __shared__ bool is_last;
    if (threadIdx.x == 0) order = given;
    if (threadIdx.x < SIGNS) weights.signs[threadIdx.x] = sign_of(threadIdx.x);
    for (u32 at = threadIdx.x; at < WEIGHTS; at += THREADS)
        ((float *)&weights.fours[FOUR(at)])[at % 4] = weights.each[LIES(at)] = weight_of(at);
    if (threadIdx.x < QUARTERS * 32) {
        const u64 key = key_of(64 + threadIdx.x / 32);
        const u32 lane = threadIdx.x % 32;
        keys[threadIdx.x] = {key_of(2 * lane) ^ key, key_of(2 * lane + 1) ^ key};
    }
    for (u32 at = 0; at < PLACES; at++) places[at][threadIdx.x] = 0;
    __syncthreads();

    const u32 lane = threadIdx.x % 32;
    const Index apart = 32 * wide, tile_numbers = QUARTERS * apart, tiles = (Index)((order.count + tile_numbers - 1) / tile_numbers);
    const bool is_whole = order.is_whole && ((u64)data & 15) == 0;
    const bool has_axes = order.axes > 1 && wanted != ONLY_FLAT, has_blocks = has_axes && order.axis[0].size % WEIGHTS == 0;
    const bool has_weighed = wanted != ONLY_AXES || has_blocks;
    float *my_axes = &places[0][threadIdx.x];
    Sketched<Real> t = {{0, 0, 0, 0, 0, (Real)INFINITE, (Real)-INFINITE, 0, 0, 0, 0.0, 0.0},
                        false, exponent_of((Real)0), 0, 0, 0, {0, 0, 0}, 0};
    Large large = {{0, 0, 0, 0, 0, INFINITE, -INFINITE, 0, 0, 0, 0.0, 0.0}, false};
    Real weighed[wide];
    float flat[wide + (wide == LANES)]; /* a tile of bytes is two blocks of weights: the second one's sums follow the first one's */
    Rows<QUARTERS, Index> rows;
    u64 hash = 0, my_factor = 0;
    u32 signs = 0, my_signs = 0;
    auto take = [&](int quarter, const uint4 &now, Index number, int have, bool is_full) {
        Real x[wide];
        unpack<Raw>(x, now, read);
        const ulonglong2 key = keys[quarter * 32 + lane];
        if (wanted != ONLY_AXES && have > 0) hash += hashed((u64)now.y << 32 | now.x, key.x);
        if (wanted != ONLY_AXES && have * (int)sizeof(Raw) > 8) hash += hashed((u64)now.w << 32 | now.z, key.y);
        if (wanted == ALL) add_numbers(t, large, x, have);
        else
#pragma unroll
            for (int k = 0; k < wide; k++) x[k] = magnitude(x[k]) <= (Real)LARGEST ? x[k] : (Real)0;
        if (has_weighed) {
            float by[wide];
            weights_at(by, weights, (u32)number % WEIGHTS);
#pragma unroll
            for (int k = 0; k < wide; k++) weighed[k] += x[k] * (Real)by[k];
        }
        if (has_axes && !has_blocks && is_full) add_axes(my_axes, order, rows, quarter, x, weights);
        if (has_axes && !has_blocks && !is_full) {
            Real each[wide]; /* a copy: what is often need not lie in memory */
#pragma unroll
            for (int k = 0; k < wide; k++) each[k] = x[k];
            add_axes_each(my_axes, order, number, each, have, weights);
        }
        if (!has_weighed || (quarter != QUARTERS - 1 && (quarter + 1) * apart % WEIGHTS)) return;
        const Index block = number / WEIGHTS; /* all that was weighed stands in it */
        const float sign = signs >> (wide == LANES ? block % 2 : 0) & 1 ? -1.0f : 1.0f;
        if (wide == LANES && block % 2)
#pragma unroll
            for (int k = 0; k < wide; k++) flat[k + (wide == LANES)] += (float)weighed[k] * sign;
        else
#pragma unroll
            for (int k = 0; k < wide; k++) flat[k] += (float)weighed[k] * sign;
        if (has_blocks) {
            const Rows<1, Index> its = rows_of<1>(order, number, (Index)0, weights);
            const Index its_block = its.at[0] / WEIGHTS;
            const u32 to = its.above[0].sum + (u32)number % LANES + (u32)its_block % PRIME;
            add_lanes(my_axes, to, its.above[0].weight * sign_at(weights, its_block), weighed);
        }
#pragma unroll
        for (int k = 0; k < wide; k++) weighed[k] = 0;
    };
#pragma unroll
    for (int k = 0; k < wide; k++) weighed[k] = 0;
#pragma unroll
    for (int k = 0; k < wide + (wide == LANES); k++) flat[k] = 0;
    const u32 begin = (blockIdx.x * (THREADS / 32) + threadIdx.x / 32) * (u32)tile_numbers + lane * wide;
    Index tile = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    for (u32 turn = 1; tile < tiles; tile += gridDim.x * (THREADS / 32), turn++) {
        const Index first = tile * tile_numbers + lane * wide;
        hash = 0;
        if (turn % 32 == 1) { /* each lane finds what one of the next turns wants */
            const u64 later = tile + (u64)lane * gridDim.x * (THREADS / 32), block = later * tile_numbers / WEIGHTS;
            my_factor = factor_of(later);
            my_signs = (sign_of(block) < 0) | (sign_of(block + 1) < 0) << 1;
        }
        signs = __shfl_sync(~0u, my_signs, (turn - 1) % 32);
        if (is_whole && (tile + (u64)1) * tile_numbers <= order.count) {
            if (!order.is_flat || (has_axes && !has_blocks)) rows = rows_of<QUARTERS>(order, first, apart, weights);
            uint4 loaded[QUARTERS]; /* all under way at once: one alone leaves the memory idle */
#pragma unroll
            for (int k = 0; k < QUARTERS; k++)
                loaded[k] = *(const uint4 *)(data + (order.is_flat ? (long long)(first + k * apart)
                                                                   : rows.above[k].begin + (long long)rows.at[k]));
#pragma unroll
            for (int k = 0; k < QUARTERS; k++) take(k, loaded[k], first + k * apart, wide, true);
        } else
#pragma unroll 1
            for (int k = 0; k < QUARTERS; k++) {
                const Index number = first + k * apart;
                take(k, gathered(data, order, number, weights), number, there(order, number, wide), false);
            }
        t.hash += hash * __shfl_sync(~0u, my_factor, (turn - 1) % 32);
        if (turn % SHORT_TILES == 0) { drain(t.sums); drain_powers(t); }
    }
    drain(t.sums); drain(large.sums); drain_powers(t);
    write_part(parts + blockIdx.x, t, large.sums, places, flat, (begin % LANES + begin / WEIGHTS) % PRIME, wanted);
    if (threadIdx.x == 0) is_last = atomicAdd(ended, 1) == gridDim.x - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    join_parts(parts, order.count * sizeof(Raw), order, row, wanted, known);
    if (threadIdx.x == 0) *ended = 0; /* for the next kernel of this stream */
}

#define SKETCH_BY(PREFIX, NAME, INDEX) \
extern "C" __global__ void __launch_bounds__(THREADS, 2) PREFIX##_##NAME(const NAME##_numbers::Raw *data, const Order order, \
    u32 wanted, const double *known, double *parts, u32 *ended, double *row) \
{ sketch<NAME##_numbers::Raw, NAME##_numbers::Real, INDEX>(data, order, wanted, known, parts, ended, row, NAME##_numbers()); }
#define SKETCH(NAME) SKETCH_BY(sketch, NAME, u32)
#define LARGE_SKETCH(NAME) SKETCH_BY(large_sketch, NAME, u64)
