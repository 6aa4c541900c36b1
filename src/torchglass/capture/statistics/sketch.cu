/* By what the numbers of one tensor are known again (sketch.py is the definition), and its statistics in the same pass;
 * it stands behind statistics.cu.
 *
 * Numbers are taken in their logical order. A warp takes the 2,048 bytes that are hashed together: of each quarter a thread
 * has sixteen. Sums by place stay in shared memory, seventeen of each kind for each thread, and are joined in a fixed order.
 */
#define THREADS 256
#define WEIGHTS 1024
#define LANES 16
#define PRIME 17
#define QUARTERS 4
#define MOST_AXES 9
#define LARGEST 1e30
#define SHORT_TILES 4 /* after so many short sums are added to the long ones */
#define TALLY 9       /* of a part: doubles of the statistics … */
#define POWERS (2 * TALLY)            /* … behind those of numbers that are too large: |x|, x³, x⁴, … */
#define BY_PLACE (POWERS + 3)         /* … both kinds of sums by place, … */
#define HASH (BY_PLACE + 2 * PRIME)   /* … and the hash */
#define PART (HASH + 1)

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
/* They lie so that threads which read each the eighth one do not wait for one another. */
#define LIES(AT) ((AT) + (AT) / 8)
__device__ __forceinline__ float sign_of(u64 block) { return block && stirred(WEIGHTS + block) & 1 ? -1.0f : 1.0f; }

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

/* ---------------------------------------------------------------- where numbers stand */

__device__ __forceinline__ u32 divided(const Axis &axis, u32 by) { return (__umulhi(by, axis.magic) + by) >> axis.shift; }
__device__ __forceinline__ u64 divided(const Axis &axis, u64 by) { return by / axis.size; }

template <typename Index> __device__ __forceinline__ void weigh(float &weight, u32 &sum, Index at, const float *weights)
{
    weight *= weights[LIES((u32)at % WEIGHTS)];
    sum += (u32)at % LANES;
    if (at >= WEIGHTS) { weight *= sign_of(at / WEIGHTS); sum += (u32)(at / WEIGHTS) % PRIME; }
}

/* Of numbers that each begin some more: where they stand in their rows, and what the axes but the innermost say of these:
 * their weights and sums, and where they begin. All at once, since each step waits for the one before. */
template <int many, typename Index> struct Rows {
    Index at[many], number[many];
    float weight[many];
    u32 sum[many];
    long long begin[many];
};
template <int many, typename Index>
__device__ __forceinline__ Rows<many, Index> rows_of(const Order &order, Index first, Index apart, const float *weights)
{
    Rows<many, Index> found;
    Index rest[many];
#pragma unroll
    for (int k = 0; k < many; k++) {
        const Index number = first + k * apart;
        rest[k] = found.number[k] = divided(order.axis[0], number);
        found.at[k] = number - rest[k] * (Index)order.axis[0].size;
        found.weight[k] = 1.0f; found.sum[k] = 0; found.begin[k] = 0;
    }
#pragma unroll 1
    for (int axis = 1; axis < (int)order.axes; axis++) {
        const Axis &its = order.axis[axis];
#pragma unroll
        for (int k = 0; k < many; k++) {
            const Index next = divided(its, rest[k]), at = axis + 1 < (int)order.axes ? rest[k] - next * (Index)its.size : rest[k];
            weigh(found.weight[k], found.sum[k], at, weights);
            if (!order.is_flat) found.begin[k] += (long long)at * its.step;
            rest[k] = next;
        }
    }
    return found;
}

typedef float Places[PRIME][THREADS];

/* What belongs to these sums of the thread, all of them different: read first, since each write might be of the next. */
template <int wide>
__device__ __forceinline__ void add_places(float *mine, const u32 (&to)[wide], const float (&what)[wide])
{
    float before[wide];
#pragma unroll
    for (int k = 0; k < wide; k++) before[k] = mine[to[k] * THREADS];
#pragma unroll
    for (int k = 0; k < wide; k++) mine[to[k] * THREADS] = before[k] + what[k];
}

/* Sums that were weighed by their place in a block of weights, of lanes that follow one another. */
template <int wide, typename Real>
__device__ __forceinline__ void add_lanes(float *mine, u32 first, float by, const Real (&sums)[wide])
{
    u32 to[wide];
    float what[wide];
    first %= PRIME;
#pragma unroll
    for (int k = 0; k < wide; k++) {
        to[k] = first + k - (first + k >= PRIME ? PRIME : 0);
        what[k] = (float)sums[k] * by;
    }
    add_places(mine, to, what);
}

/* Numbers of several rows, or of a row's end. */
template <typename Real, typename Index>
__device__ __noinline__ void add_axes_each(float *mine, const Order &order, Index number, const Real *x, int have, const float *weights)
{
    Rows<1, Index> row = rows_of<1>(order, number, (Index)0, weights);
    for (int k = 0; k < have; k++, row.at[0]++) {
        if (row.at[0] == (Index)order.axis[0].size) row = rows_of<1>(order, (Index)(number + k), (Index)0, weights);
        float weight = row.weight[0];
        u32 sum = row.sum[0];
        weigh(weight, sum, row.at[0], weights);
        mine[sum % PRIME * THREADS] += (float)(x[k] * (Real)weight);
    }
}

/* Sums by the axes, of numbers that stand in the rows' one with this number. */
template <int wide, int many, typename Real, typename Index>
__device__ __forceinline__ void add_axes(float *mine, const Order &order, const Rows<many, Index> &rows, int which,
                                         const Real (&x)[wide], const float *weights)
{
    const Index at = rows.at[which], block = at / WEIGHTS;
    const u32 inner = (u32)at % WEIGHTS;
    if (at + wide <= (Index)order.axis[0].size && inner + wide <= WEIGHTS) { /* all in one row, and one block of weights */
        const u32 first = (rows.sum[which] + (u32)block) % PRIME;
        const float by = rows.weight[which] * sign_of(block);
        u32 to[wide];
        float what[wide];
#pragma unroll
        for (int k = 0; k < wide; k++) {
            to[k] = first + (inner + k) % LANES;
            to[k] -= to[k] >= PRIME ? PRIME : 0;
            what[k] = (float)(x[k] * (Real)weights[LIES(inner + k)]) * by;
        }
        add_places(mine, to, what);
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
__device__ __noinline__ uint4 gathered(const Raw *data, const Order &order, Index number, const float *weights)
{
    const int have = there(order, number, wide);
    Rows<1, Index> row = {};
    if (!order.is_flat && have) row = rows_of<1>(order, number, (Index)0, weights);
    if (order.is_flat) row.begin[0] = (long long)number;
    uint4 found = {0, 0, 0, 0};
    Raw raw[wide];
#pragma unroll 1
    for (int k = 0; k < wide; k++, row.at[0]++) {
        if (!order.is_flat && k < have && row.at[0] == (Index)order.axis[0].size)
            row = rows_of<1>(order, (Index)(number + k), (Index)0, weights);
        raw[k] = k < have ? data[row.begin[0] + (long long)row.at[0] * order.axis[0].step] : (Raw)0;
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

template <typename Real> __device__ __forceinline__ void write_tally(double *to, const Tally<Real> &t)
{
    to[0] = t.nans; to[1] = t.posinf; to[2] = t.neginf; to[3] = t.zeros; to[4] = t.low; to[5] = t.high;
    to[6] = t.finite; to[7] = t.mean; to[8] = t.squares;
}

/* What a block has found becomes its part. */
template <typename Real>
__device__ __forceinline__ void write_part(double *part, const Sketched<Real> &t, const Sums<double> &large, const Places &flat,
                                           const Places &axes, u32 wanted)
{
    __shared__ double powers[3][THREADS / 32];
    __shared__ u64 hashes[THREADS / 32];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Tally<Real> tally = about_its_mean(t.sums);
    if (wanted == ALL) tally = over_block(tally);
    Tally<double> apart = {0, 0, 0, 0, INFINITE, -INFINITE, 0.0, 0.0, 0.0};
    if (__syncthreads_or(large.finite != 0)) apart = over_block(about_its_mean(large));
    for (int power = 0; power < 3; power++) {
        double sum = over_warp(t.powers[power]);
        if (lane == 0) powers[power][warp] = sum;
    }
    u64 hash = over_warp(t.hash);
    if (lane == 0) hashes[warp] = hash;
    for (u32 column = warp; column < 2 * PRIME; column += THREADS / 32) {
        const float *from = column < PRIME ? flat[column] : axes[column - PRIME];
        double sum = 0;
        for (u32 each = lane; each < THREADS; each += 32) sum += from[each];
        sum = over_warp(sum);
        if (lane == 0) part[BY_PLACE + column] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        write_tally(part, tally);
        write_tally(part + TALLY, apart);
        for (int power = 0; power < 3; power++) {
            double sum = 0;
            for (int each = 0; each < THREADS / 32; each++) sum += powers[power][each];
            part[POWERS + power] = sum;
        }
        u64 all = 0;
        for (int each = 0; each < THREADS / 32; each++) all += hashes[each];
        part[HASH] = __longlong_as_double((long long)all);
    }
    __threadfence();
    __syncthreads();
}

/* Of the parts of all blocks one tally, in a fixed order. They were written by others: what this one has seen is old. */
__device__ Tally<double> over_parts(const double *parts)
{
    Tally<double> all = {0, 0, 0, 0, INFINITE, -INFINITE, 0.0, 0.0, 0.0};
    for (u32 each = threadIdx.x; each < gridDim.x; each += blockDim.x) {
        double part[TALLY];
#pragma unroll
        for (int at = 0; at < TALLY; at++) part[at] = __ldcg(parts + (u64)each * PART + at);
        join(all, {(u64)part[0], (u64)part[1], (u64)part[2], (u64)part[3], part[4], part[5], part[6], part[7], part[8]});
    }
    if (__syncthreads_or(all.finite != 0 || all.nans || all.posinf || all.neginf)) all = over_block(all);
    return all;
}

/* The sketch as the journal has it. */
struct Found { u64 hash; float flat[PRIME], axes[PRIME]; double orders[7]; long long odd; };

/* A row: nine doubles of the statistics, and the sketch. */
__device__ void write_row(double *row, const Order &order, const double *sums, u64 hash, Tally<double> all,
                          const Tally<double> &large, u32 wanted, const double *known)
{
    Found &found = *(Found *)(row + TALLY);
    if (wanted != ALL)
        for (int at = 0; at < TALLY + (int)(sizeof(Found) / 8); at++) row[at] = known[at];
    if (wanted != ONLY_AXES) {
        found.hash = hash ? hash : 1;
        for (int at = 0; at < PRIME; at++) found.flat[at] = (float)sums[BY_PLACE + at];
    }
    if (wanted != ONLY_FLAT) /* one axis is the flat order */
        for (int at = 0; at < PRIME; at++) found.axes[at] = order.axes > 1 ? (float)sums[BY_PLACE + PRIME + at] : found.flat[at];
    if (wanted != ALL) return;
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
    __shared__ double sums[PART];
    Tally<double> all, large;
    if (wanted == ALL) { all = over_parts(parts); large = over_parts(parts + TALLY); }
    const u32 lane = threadIdx.x % 32;
    for (u32 column = POWERS + threadIdx.x / 32; column < HASH; column += THREADS / 32) {
        double sum = 0;
#pragma unroll 4
        for (u32 each = lane; each < gridDim.x; each += 32) sum += __ldcg(parts + (u64)each * PART + column);
        sum = over_warp(sum);
        if (lane == 0) sums[column] = sum;
    }
    u64 hash = 0;
#pragma unroll 4
    for (u32 each = lane; each < gridDim.x; each += 32) hash += (u64)__double_as_longlong(__ldcg(parts + (u64)each * PART + HASH));
    hash = over_warp(hash);
    __syncthreads();
    if (threadIdx.x == 0) write_row(row, order, sums, stirred(hash ^ stirred(bytes)), all, large, wanted, known);
}

/* ---------------------------------------------------------------- the kernel */

template <typename Raw, typename Real, typename Index, typename Read>
__device__ void sketch(const Raw *data, const Order &given, u32 wanted, const double *known, double *parts, u32 *ended,
                       double *row, Read read)
{
    const int wide = 16 / sizeof(Raw);
    __shared__ float weights[LIES(WEIGHTS)];
    __shared__ Places flat, axes;
    __shared__ ulonglong2 keys[QUARTERS * 32];
    __shared__ Order order; /* by a place of its own: functions that are called may not have those of the kernel */
    __shared__ bool is_last;
    if (threadIdx.x == 0) order = given;
    for (u32 at = threadIdx.x; at < WEIGHTS; at += THREADS) weights[LIES(at)] = weight_of(at);
    if (threadIdx.x < QUARTERS * 32) {
        const u64 key = key_of(64 + threadIdx.x / 32);
        const u32 lane = threadIdx.x % 32;
        keys[threadIdx.x] = {key_of(2 * lane) ^ key, key_of(2 * lane + 1) ^ key};
    }
    for (u32 at = 0; at < PRIME; at++) flat[at][threadIdx.x] = axes[at][threadIdx.x] = 0;
    __syncthreads();

    const u32 lane = threadIdx.x % 32;
    const Index apart = 32 * wide, tile_numbers = QUARTERS * apart, tiles = (Index)((order.count + tile_numbers - 1) / tile_numbers);
    const bool is_whole = order.is_whole && ((u64)data & 15) == 0;
    const bool has_axes = order.axes > 1 && wanted != ONLY_FLAT, has_blocks = has_axes && order.axis[0].size % WEIGHTS == 0;
    const bool has_weighed = wanted != ONLY_AXES || has_blocks;
    float *my_flat = &flat[0][threadIdx.x], *my_axes = &axes[0][threadIdx.x];
    Sketched<Real> t = {{0, 0, 0, 0, 0, (Real)INFINITE, (Real)-INFINITE, 0, 0, 0, 0.0, 0.0},
                        false, exponent_of((Real)0), 0, 0, 0, {0, 0, 0}, 0};
    Large large = {{0, 0, 0, 0, 0, INFINITE, -INFINITE, 0, 0, 0, 0.0, 0.0}, false};
    Real weighed[wide];
    Rows<QUARTERS, Index> rows;
    u64 hash = 0;
    auto take = [&](int quarter, const uint4 &now, Index number, int have, bool is_full) {
        Raw raw[wide];
        Real x[wide];
        memcpy(raw, &now, 16);
        const ulonglong2 key = keys[quarter * 32 + lane];
        if (wanted != ONLY_AXES && have > 0) hash += hashed((u64)now.y << 32 | now.x, key.x);
        if (wanted != ONLY_AXES && have * (int)sizeof(Raw) > 8) hash += hashed((u64)now.w << 32 | now.z, key.y);
#pragma unroll
        for (int k = 0; k < wide; k++) x[k] = (Real)read(raw[k]);
        if (wanted == ALL) add_numbers(t, large, x, have);
        else
#pragma unroll
            for (int k = 0; k < wide; k++) x[k] = magnitude(x[k]) <= (Real)LARGEST ? x[k] : (Real)0;
        const float *by = weights + LIES((u32)number % WEIGHTS);
#pragma unroll
        for (int k = 0; k < wide && has_weighed; k++) weighed[k] += x[k] * (Real)by[LIES(k)];
        if (has_axes && !has_blocks && is_full) add_axes(my_axes, order, rows, quarter, x, weights);
        if (has_axes && !has_blocks && !is_full) add_axes_each(my_axes, order, number, x, have, weights);
        if (!has_weighed || (quarter != QUARTERS - 1 && (quarter + 1) * apart % WEIGHTS)) return;
        const Index block = number / WEIGHTS; /* all that was weighed stands in it */
        add_lanes(my_flat, (u32)number % LANES + (u32)block % PRIME, sign_of(block), weighed);
        if (has_blocks) {
            const Rows<1, Index> its = rows_of<1>(order, number, (Index)0, weights);
            const Index its_block = its.at[0] / WEIGHTS;
            add_lanes(my_axes, its.sum[0] + (u32)number % LANES + (u32)its_block % PRIME, its.weight[0] * sign_of(its_block), weighed);
        }
#pragma unroll
        for (int k = 0; k < wide; k++) weighed[k] = 0;
    };
#pragma unroll
    for (int k = 0; k < wide; k++) weighed[k] = 0;
    Index tile = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    for (u32 turn = 1; tile < tiles; tile += gridDim.x * (THREADS / 32), turn++) {
        const Index first = tile * tile_numbers + lane * wide;
        hash = 0;
        if (is_whole && (tile + (u64)1) * tile_numbers <= order.count) {
            if (!order.is_flat || (has_axes && !has_blocks)) rows = rows_of<QUARTERS>(order, first, apart, weights);
            uint4 loaded[QUARTERS]; /* all under way at once: one alone leaves the memory idle */
#pragma unroll
            for (int k = 0; k < QUARTERS; k++)
                loaded[k] = *(const uint4 *)(data + (order.is_flat ? (long long)(first + k * apart) : rows.begin[k] + (long long)rows.at[k]));
#pragma unroll
            for (int k = 0; k < QUARTERS; k++) take(k, loaded[k], first + k * apart, wide, true);
        } else
#pragma unroll 1
            for (int k = 0; k < QUARTERS; k++) {
                const Index number = first + k * apart;
                take(k, gathered(data, order, number, weights), number, there(order, number, wide), false);
            }
        t.hash += hash * factor_of(tile);
        if (turn % SHORT_TILES == 0) { drain(t.sums); drain_powers(t); }
    }
    drain(t.sums); drain(large.sums); drain_powers(t);
    write_part(parts + (u64)blockIdx.x * PART, t, large.sums, flat, axes, wanted);
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
