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
#define POWERS (2 * TALLY)            /* … behind those of numbers that are too large: |x|, x², x³, x⁴, … */
#define BY_PLACE (POWERS + 4)         /* … both kinds of sums by place, … */
#define HASH (BY_PLACE + 2 * PRIME)   /* … and the hash */
#define PART (HASH + 1)

/* An axis of more than one number, the innermost first; n / size is (n * magic >> 32) + n >> shift, below 2**31. */
struct Axis { u64 size; u32 magic, shift; long long step; };
struct Order { u64 count; u32 axes, is_flat, is_whole, is_small; Axis axis[MOST_AXES]; };

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
    Real sizes, squares, cubes, fourths;
    double powers[4];
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
    t.powers[1] += times_power(t.squares, 2 * t.exponent);
    t.powers[2] += times_power(t.cubes, 3 * t.exponent);
    t.powers[3] += times_power(t.fourths, 4 * t.exponent);
    t.sizes = t.squares = t.cubes = t.fourths = 0;
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
    t.sizes += magnitude(x); t.squares += y * y; t.cubes += y * y * y; t.fourths += y * y * y * y;
    return x;
}

/* The numbers of one load, together: as good as all are plain; `have` of them are there. */
template <int wide, typename Real> __device__ __forceinline__ void add_numbers(Sketched<Real> &t, Large &large, Real (&x)[wide], int have)
{
    if (!t.settled)
#pragma unroll
        for (int k = 0; k < wide; k++)
            if (k < have && magnitude(x[k]) <= (Real)LARGEST) settle(t.sums, x[k], t.settled);
    Real one = 0, two = 0, sizes = 0, squares = 0, cubes = 0, fourths = 0;
#pragma unroll
    for (int k = 0; k < wide; k++) {
        Real d = x[k] - t.sums.shift, y = without(x[k], t.exponent), yy = y * y;
        one += d; two += d * d; sizes += magnitude(x[k]); squares += yy; cubes += yy * y; fourths += yy * yy;
    }
    if (have < wide || !(is_plain(one) && is_plain(two) && has_room(fourths)) || is_lost(one, two)) { /* also where one of them is NaN */
        Real each[wide]; /* a copy: what is not known by its index when this is compiled lies in memory */
#pragma unroll
        for (int k = 0; k < wide; k++) each[k] = x[k];
#pragma unroll 1
        for (int k = 0; k < have; k++) each[k] = add_one(t, large, each[k]);
#pragma unroll
        for (int k = 0; k < wide; k++) x[k] = each[k];
        return;
    }
    t.sums.one += one; t.sums.two += two; t.sums.finite += wide;
    t.sizes += sizes; t.squares += squares; t.cubes += cubes; t.fourths += fourths;
#pragma unroll
    for (int k = 0; k < wide; k++) {
        t.sums.zeros += x[k] == (Real)0;
        t.sums.low = smaller(x[k], t.sums.low);
        t.sums.high = larger(x[k], t.sums.high);
    }
}

/* ---------------------------------------------------------------- where numbers stand */

__device__ __forceinline__ u64 divided(const Order &order, int axis, u64 by)
{
    const Axis &a = order.axis[axis];
    return order.is_small ? (__umulhi((u32)by, a.magic) + (u32)by) >> a.shift : by / a.size;
}

/* What the axes but the innermost say of a row: its weight, its sum, and where it begins. */
struct Row { u64 number, from; float weight; u32 sum; long long begin; };

__device__ __forceinline__ void weigh(float &weight, u32 &sum, u64 at, const float *weights)
{
    weight *= weights[LIES((u32)at % WEIGHTS)];
    sum += at % LANES;
    if (at >= WEIGHTS) { weight *= sign_of(at / WEIGHTS); sum += (u32)(at / WEIGHTS) % PRIME; }
}

__device__ __noinline__ Row row_at(const Order &order, u64 row, const float *weights)
{
    Row found = {row, row * order.axis[0].size, 1.0f, 0, 0};
    for (int axis = 1; axis < (int)order.axes; axis++) {
        u64 rest = axis + 1 < (int)order.axes ? divided(order, axis, row) : 0, at = row - rest * order.axis[axis].size;
        weigh(found.weight, found.sum, at, weights);
        found.begin += (long long)at * order.axis[axis].step;
        row = rest;
    }
    return found;
}

typedef float Places[PRIME][THREADS];

/* What belongs to sums that follow one another. */
template <int wide, typename Real>
__device__ __forceinline__ void add_places(Places &to, u32 first, float by, const Real (&sums)[wide])
{
    u32 at = first % PRIME;
#pragma unroll
    for (int k = 0; k < wide; k++) {
        to[at][threadIdx.x] += (float)sums[k] * by;
        at = at == PRIME - 1 ? 0 : at + 1;
    }
}

/* Numbers that were weighed by their place in a block of weights, and stand in one row of its own axis. */
template <int wide, typename Real>
__device__ __forceinline__ void add_in_row(Places &to, const Row &row, u64 at, const Real (&sums)[wide])
{
    const u64 block = at / WEIGHTS;
    add_places(to, row.sum + at % LANES + (u32)block % PRIME, row.weight * sign_of(block), sums);
}

/* Sums by the axes, of numbers whose first stands at `number`. */
template <int wide, typename Real>
__device__ __forceinline__ void add_axes(Places &to, const Order &order, u64 number, const Real (&x)[wide], int have,
                                         const float *weights)
{
    const u64 size = order.axis[0].size;
    Row row = row_at(order, divided(order, 0, number), weights);
    u64 at = number - row.from;
    const u32 inner = (u32)at % WEIGHTS;
    if (at + wide <= size && inner + wide <= WEIGHTS) { /* all in one row, and one block of weights */
        const u64 block = at / WEIGHTS;
        const u32 first = (row.sum + (u32)block) % PRIME;
        const float by = row.weight * sign_of(block);
#pragma unroll
        for (int k = 0; k < wide; k++) {
            u32 sum = first + (inner + k) % LANES;
            sum -= sum >= PRIME ? PRIME : 0;
            to[sum][threadIdx.x] += (float)(x[k] * (Real)weights[LIES(inner + k)]) * by;
        }
        return;
    }
    Real each[wide];
#pragma unroll
    for (int k = 0; k < wide; k++) each[k] = x[k];
#pragma unroll 1
    for (int k = 0; k < have; k++, at++) {
        if (at == size) { row = row_at(order, row.number + 1, weights); at = 0; }
        float weight = row.weight;
        u32 sum = row.sum;
        weigh(weight, sum, at, weights);
        to[sum % PRIME][threadIdx.x] += (float)(each[k] * (Real)weight);
    }
}

/* Sixteen bytes in the logical order that are not side by side, or not all there: what is not as 0. */
template <typename Raw, int wide = 16 / sizeof(Raw)>
__device__ __noinline__ uint4 gathered(const Raw *data, const Order &order, u64 number, int have, const float *weights)
{
    Row row = {0, 0, 1.0f, 0, 0};
    if (order.is_flat) row.begin = (long long)number;
    else if (have) row = row_at(order, divided(order, 0, number), weights);
    long long at = order.is_flat ? 0 : (long long)(number - row.from), step = order.is_flat ? 1 : order.axis[0].step;
    uint4 found = {0, 0, 0, 0};
    Raw raw[wide];
#pragma unroll 1
    for (int k = 0; k < wide; k++, at++) {
        if (!order.is_flat && k < have && at == (long long)order.axis[0].size) {
            row = row_at(order, row.number + 1, weights);
            at = 0;
        }
        raw[k] = k < have ? data[row.begin + at * step] : (Raw)0;
    }
    memcpy(&found, raw, 16);
    return found;
}

/* How many of the numbers of a load are there. */
__device__ __forceinline__ int there(const Order &order, u64 number, int wide)
{
    return number + wide <= order.count ? wide : number < order.count ? (int)(order.count - number) : 0;
}

template <typename Raw, int wide = 16 / sizeof(Raw)>
__device__ __forceinline__ uint4 load(const Raw *data, const Order &order, bool is_whole, u64 number, const float *weights)
{
    const int have = there(order, number, wide);
    if (!is_whole || have < wide) return gathered(data, order, number, have, weights);
    if (order.is_flat) return *(const uint4 *)(data + number);
    Row row = row_at(order, divided(order, 0, number), weights);
    return *(const uint4 *)(data + row.begin + (long long)(number - row.from));
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
                                           const Places &axes)
{
    __shared__ double powers[4][THREADS / 32];
    __shared__ u64 hashes[THREADS / 32];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Tally<Real> tally = over_block(about_its_mean(t.sums));
    __syncthreads();
    Tally<double> apart = over_block(about_its_mean(large));
    for (int power = 0; power < 4; power++) {
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
        for (int power = 0; power < 4; power++) {
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

/* Of the parts of all blocks one tally, in a fixed order. */
__device__ Tally<double> over_parts(const double *parts)
{
    Tally<double> all = {0, 0, 0, 0, INFINITE, -INFINITE, 0.0, 0.0, 0.0};
    for (u32 each = threadIdx.x; each < gridDim.x; each += blockDim.x) {
        const volatile double *part = parts + (u64)each * PART;
        join(all, {(u64)part[0], (u64)part[1], (u64)part[2], (u64)part[3], part[4], part[5], part[6], part[7], part[8]});
    }
    all = over_block(all);
    __syncthreads();
    return all;
}

/* The sketch as the journal has it. */
struct Found { u64 hash; float flat[PRIME], axes[PRIME]; double orders[7]; long long odd; };

/* A row: nine doubles of the statistics, and the sketch. */
__device__ void write_row(double *row, const Order &order, const double *sums, u64 hash, Tally<double> all,
                          const Tally<double> &large)
{
    Found &found = *(Found *)(row + TALLY);
    found.hash = hash ? hash : 1;
    for (int at = 0; at < PRIME; at++) {
        found.flat[at] = (float)sums[BY_PLACE + at];
        found.axes[at] = (float)sums[BY_PLACE + (order.axes > 1 ? PRIME : 0) + at]; /* one axis is the flat order */
    }
    double orders[7] = {all.mean * all.finite, sums[POWERS + 1], sums[POWERS], sums[POWERS + 2], sums[POWERS + 3],
                        all.finite > 0 ? all.low : 0.0, all.finite > 0 ? all.high : 0.0};
    for (int at = 0; at < 7; at++) found.orders[at] = orders[at];
    found.odd = (long long)(order.count - (u64)all.finite);
    join(all, large);
    row[0] = (double)order.count; row[1] = all.nans; row[2] = all.posinf; row[3] = all.neginf; row[4] = all.zeros;
    row[5] = all.low; row[6] = all.high; row[7] = all.mean * all.finite; row[8] = all.squares;
}

/* The last block to end joins the parts. */
__device__ __noinline__ void join_parts(const double *parts, u64 bytes, const Order &order, double *row)
{
    __shared__ double sums[PART];
    Tally<double> all = over_parts(parts), large = over_parts(parts + TALLY);
    const u32 lane = threadIdx.x % 32;
    for (u32 column = POWERS + threadIdx.x / 32; column < HASH; column += THREADS / 32) {
        double sum = 0;
        for (u32 each = lane; each < gridDim.x; each += 32) sum += ((const volatile double *)parts)[(u64)each * PART + column];
        sum = over_warp(sum);
        if (lane == 0) sums[column] = sum;
    }
    u64 hash = 0;
    for (u32 each = lane; each < gridDim.x; each += 32)
        hash += (u64)__double_as_longlong(((const volatile double *)parts)[(u64)each * PART + HASH]);
    hash = over_warp(hash);
    __syncthreads();
    if (threadIdx.x == 0) write_row(row, order, sums, stirred(hash ^ stirred(bytes)), all, large);
}

/* ---------------------------------------------------------------- the kernel */

template <typename Raw, typename Real, typename Read>
__device__ void sketch(const Raw *data, const Order &given, double *parts, u32 *ended, double *row, Read read)
{
    const int wide = 16 / sizeof(Raw);
    __shared__ float weights[LIES(WEIGHTS)];
    __shared__ Places flat, axes;
    __shared__ u64 quarter_keys[QUARTERS];
    __shared__ Order order; /* by a place of its own: functions that are called may not have those of the kernel */
    __shared__ bool is_last;
    if (threadIdx.x == 0) order = given;
    for (u32 at = threadIdx.x; at < WEIGHTS; at += THREADS) weights[LIES(at)] = weight_of(at);
    if (threadIdx.x < QUARTERS) quarter_keys[threadIdx.x] = key_of(64 + threadIdx.x);
    for (u32 at = 0; at < PRIME; at++) flat[at][threadIdx.x] = axes[at][threadIdx.x] = 0;
    __syncthreads();

    const u32 lane = threadIdx.x % 32;
    const u64 tile_numbers = QUARTERS * 32 * wide, tiles = (order.count + tile_numbers - 1) / tile_numbers;
    const u64 keys[2] = {key_of(2 * lane), key_of(2 * lane + 1)};
    const bool is_whole = order.is_whole && ((u64)data & 15) == 0;
    const bool has_axes = order.axes > 1, has_blocks = has_axes && order.axis[0].size % WEIGHTS == 0;
    Sketched<Real> t = {{0, 0, 0, 0, 0, (Real)INFINITE, (Real)-INFINITE, 0, 0, 0, 0.0, 0.0},
                        false, exponent_of((Real)0), 0, 0, 0, 0, {0, 0, 0, 0}, 0};
    Large large = {{0, 0, 0, 0, 0, INFINITE, -INFINITE, 0, 0, 0, 0.0, 0.0}, false};
    u64 tile = (u64)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    for (u32 turn = 1; tile < tiles; tile += (u64)gridDim.x * (THREADS / 32), turn++) {
        const u64 first = tile * tile_numbers + lane * wide;
        uint4 loaded[QUARTERS]; /* all under way at once: one alone leaves the memory idle */
#pragma unroll
        for (int k = 0; k < QUARTERS; k++) loaded[k] = load<Raw>(data, order, is_whole, first + k * 32 * wide, weights);
        Real weighed[wide] = {};
        u64 hash = 0;
#pragma unroll 1 /* it would be long */
        for (int quarter = 0; quarter < QUARTERS; quarter++) {
            const u64 number = first + quarter * 32 * wide;
            const uint4 now = loaded[0];
            loaded[0] = loaded[1]; loaded[1] = loaded[2]; loaded[2] = loaded[3];
            const int have = there(order, number, wide);
            Raw raw[wide];
            Real x[wide];
            memcpy(raw, &now, 16);
#pragma unroll
            for (int k = 0; k < wide; k++) x[k] = (Real)read(raw[k]);
            const u64 key = quarter_keys[quarter];
            if (have > 0) hash += hashed((u64)now.y << 32 | now.x, keys[0] ^ key);
            if (have * (int)sizeof(Raw) > 8) hash += hashed((u64)now.w << 32 | now.z, keys[1] ^ key);
            add_numbers(t, large, x, have);
#pragma unroll
            for (int k = 0; k < wide; k++) weighed[k] += x[k] * (Real)weights[LIES((u32)number % WEIGHTS) + LIES(k)];
            if (has_axes && !has_blocks) add_axes(axes, order, number, x, have, weights);
            if (quarter != QUARTERS - 1 && (quarter + 1) * 32 * wide % WEIGHTS) continue;
            const u64 block = number / WEIGHTS; /* all that was weighed stands in it */
            add_places(flat, number % LANES + (u32)block % PRIME, sign_of(block), weighed);
            if (has_blocks) {
                Row its = row_at(order, divided(order, 0, number), weights);
                add_in_row(axes, its, number - its.from, weighed);
            }
#pragma unroll
            for (int k = 0; k < wide; k++) weighed[k] = 0;
        }
        t.hash += hash * factor_of(tile);
        if (turn % SHORT_TILES == 0) { drain(t.sums); drain_powers(t); }
    }
    drain(t.sums); drain(large.sums); drain_powers(t);
    write_part(parts + (u64)blockIdx.x * PART, t, large.sums, flat, axes);
    if (threadIdx.x == 0) is_last = atomicAdd(ended, 1) == gridDim.x - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    join_parts(parts, order.count * sizeof(Raw), order, row);
    if (threadIdx.x == 0) *ended = 0; /* for the next kernel of this stream */
}

#define SKETCH(NAME) \
extern "C" __global__ void __launch_bounds__(THREADS, 2) sketch_##NAME(const NAME##_numbers::Raw *data, const Order order, \
                                                                       double *parts, u32 *ended, double *row) \
{ sketch<NAME##_numbers::Raw, NAME##_numbers::Real>(data, order, parts, ended, row, NAME##_numbers()); }
