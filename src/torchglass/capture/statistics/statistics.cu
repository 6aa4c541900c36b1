/* Statistics of one tensor. Each thread adds up its numbers in registers, about the first finite one that it meets, so that
 * numbers far from zero keep their digits; threads and blocks are joined in double precision, in a fixed order, the blocks
 * by the last one to finish.
 */
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
#define INFINITE __longlong_as_double(0x7FF0000000000000ll)

/* How the numbers of a type lie in memory, and what they are. */
__device__ __forceinline__ float from_bf16(u16 bits) { return __uint_as_float((u32)bits << 16); }
__device__ __forceinline__ float from_f16(u16 bits) { float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits)); return x; }

struct Tally { double nans, posinf, neginf, zeros, low, high, finite, mean, squares; }; /* squares: of the distances from the mean */
#define TALLY 9 /* doubles */
/* One thread's numbers, about its shift: in short sums, which are added to the long ones now and then. */
template <typename Real> struct Sums {
    u32 nans, posinf, neginf, zeros, finite;
    Real low, high, shift, one, two;
    double sum, squares;
};
__device__ __forceinline__ bool is_plain(float d) { return fabsf(d) < 1e15f; } /* its square fits, and so do some more */
__device__ __forceinline__ bool is_plain(double d) { return fabs(d) < 1e150; }

/* Whether squares are too small for this type. */
__device__ __forceinline__ bool is_lost(float sum, float squares) { return squares < 1e-25f && (sum != 0 || squares != 0); }
__device__ __forceinline__ bool is_lost(double, double) { return false; }

template <typename Real> __device__ __forceinline__ void add(Sums<Real> &t, Real x)
{
    Real d = x - t.shift;
    if (!is_plain(d) || is_lost(d, d * d)) {
        if (x - x != (Real)0) {
            if (x != x) t.nans++;
            else if (x > (Real)0) t.posinf++;
            else t.neginf++;
            return;
        }
        double far = (double)x - (double)t.shift;
        t.sum += far;
        t.squares += far * far;
        d = 0;
    }
    t.finite++;
    t.zeros += x == (Real)0;
    t.low = x < t.low ? x : t.low;
    t.high = x > t.high ? x : t.high;
    t.one += d;
    t.two += d * d;
}

__device__ __forceinline__ float smaller(float a, float b) { return fminf(a, b); }
__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double smaller(double a, double b) { return fmin(a, b); }
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }

/* The numbers of one load, together: as good as all are plain. */
template <int wide, typename Real> __device__ __forceinline__ void add_all(Sums<Real> &t, const Real (&x)[wide])
{
    Real one = 0, two = 0;
#pragma unroll
    for (int k = 0; k < wide; k++) { Real d = x[k] - t.shift; one += d; two += d * d; }
    if (!(is_plain(one) && is_plain(two)) || is_lost(one, two)) { /* also where one of them is NaN */
        for (int k = 0; k < wide; k++) add(t, x[k]);
        return;
    }
    t.one += one; t.two += two; t.finite += wide;
#pragma unroll
    for (int k = 0; k < wide; k++) {
        t.zeros += x[k] == (Real)0;
        t.low = smaller(x[k], t.low);
        t.high = larger(x[k], t.high);
    }
}

template <typename Real> __device__ __forceinline__ void drain(Sums<Real> &t)
{
    t.sum += t.one; t.squares += t.two;
    t.one = t.two = 0;
}

/* Plain sums about a number that all have in common, so that joining them is adding: a division waits for long. */
template <typename Real, typename Count> struct Joined {
    Count nans, posinf, neginf, zeros, finite;
    Real low, high;
    double sum, squares;
};
#define BELOW(FIELD) __shfl_down_sync(~0u, t.FIELD, step)
template <typename Real, typename Count> __device__ __forceinline__ void over_lanes(Joined<Real, Count> &t, int step)
{
#pragma unroll 1 /* code that runs once is waited for: the less of it, the better */
    for (; step; step >>= 1) {
        t.low = smaller(t.low, BELOW(low)); t.high = larger(t.high, BELOW(high));
        t.nans += BELOW(nans); t.posinf += BELOW(posinf); t.neginf += BELOW(neginf); t.zeros += BELOW(zeros);
        t.finite += BELOW(finite); t.sum += BELOW(sum); t.squares += BELOW(squares);
    }
}

/* Sums that each lane has about a center of its own become sums about that of the first lane that has numbers. */
template <typename Real, typename Count> __device__ __forceinline__ void about_one_center(Joined<Real, Count> &t, double &center)
{
    const u32 have = __ballot_sync(~0u, t.finite != 0);
    const double common = __shfl_sync(~0u, center, have ? __ffs(have) - 1 : 0), n = (double)t.finite, apart = n ? center - common : 0.0;
    t.squares += apart * (2 * t.sum + n * apart);
    t.sum += n * apart;
    center = common;
}

/* The first thread gets what all have. */
template <typename Real, typename Count> __device__ __forceinline__ void over_block(Joined<Real, Count> &t, double &center)
{
    __shared__ Joined<Real, Count> warps[8];
    __shared__ double centers[8];
    about_one_center(t, center);
    over_lanes(t, 16);
    if (threadIdx.x % 32 == 0) { warps[threadIdx.x / 32] = t; centers[threadIdx.x / 32] = center; }
    __syncthreads();
    if (threadIdx.x >= 32) return;
    t = warps[threadIdx.x % 8]; /* there are eight warps */
    center = centers[threadIdx.x % 8];
    about_one_center(t, center);
    over_lanes(t, 4);
}

/* What a block has found, as its part has it: each of these numbers lies so far behind the one before. */
#define PART 10
template <typename Real, typename Count>
__device__ __forceinline__ void write_joined(double *part, u64 far, const Joined<Real, Count> &t, double center)
{
    const double words[PART] = {(double)t.nans, (double)t.posinf, (double)t.neginf, (double)t.zeros, (double)t.finite,
                                t.low, t.high, t.sum, t.squares, center};
#pragma unroll
    for (int at = 0; at < PART; at++) part[at * far] = words[at];
}

__device__ __forceinline__ void join_words(Joined<double, double> &t, double &center, const double (&words)[PART])
{
    if (t.finite == 0) center = words[9];
    const double n = words[4], apart = n ? words[9] - center : 0.0;
    t.nans += words[0]; t.posinf += words[1]; t.neginf += words[2]; t.zeros += words[3]; t.finite += n;
    t.low = smaller(t.low, words[5]); t.high = larger(t.high, words[6]);
    t.squares += words[8] + apart * (2 * words[7] + n * apart);
    t.sum += words[7] + n * apart;
}

/* One more part. It was written by another block: what this one has seen is old. */
__device__ __forceinline__ void join_part(Joined<double, double> &t, double &center, const double *part, u64 far)
{
    double words[PART];
#pragma unroll
    for (int at = 0; at < PART; at++) words[at] = __ldcg(part + at * far);
    join_words(t, center, words);
}
#define NOTHING {0, 0, 0, 0, 0, INFINITE, -INFINITE, 0, 0}

/* The center is one of the numbers: so far from the mean of all that digits were lost, it would make the squares as large. */
template <typename Real, typename Count> __device__ __forceinline__ Tally tally_of(const Joined<Real, Count> &t, double center)
{
    const double n = (double)t.finite, mean = n ? t.sum / n : 0.0, about = t.squares - t.sum * mean;
    return {(double)t.nans, (double)t.posinf, (double)t.neginf, (double)t.zeros, t.low, t.high, n, n ? center + mean : 0.0,
            about > 0 ? about : 0.0};
}

/* Take the first finite number as the shift, if there is none yet. */
template <typename Real> __device__ __forceinline__ void settle(Sums<Real> &t, Real x, bool &settled)
{
    if (!settled && x - x == (Real)0) { t.shift = x; settled = true; }
}

#define AHEAD 4 /* loads that are under way at once: one alone leaves the memory idle */

template <typename Raw, typename Real, typename Read, int wide = 16 / sizeof(Raw)>
__device__ __forceinline__ void take(Sums<Real> &s, const uint4 &loaded, bool &settled, Read read)
{
    const Raw *raw = (const Raw *)&loaded;
    Real x[wide];
#pragma unroll
    for (int k = 0; k < wide; k++) x[k] = (Real)read(raw[k]);
    if (!settled)
        for (int k = 0; k < wide; k++) settle(s, x[k], settled);
    add_all(s, x);
}

/* The numbers are one run; or several runs, each so far behind the last one as the pitch says: then all begin where a load
 * of sixteen bytes may begin. */
template <typename Raw, typename Real, typename Read>
__device__ void measure(const Raw *data, u64 count, u64 run, u64 pitch, double *parts, u32 *ended, double *row, Read read)
{
    const int wide = 16 / sizeof(Raw);
    Sums<Real> s = {0, 0, 0, 0, 0, (Real)INFINITE, (Real)-INFINITE, 0, 0, 0, 0.0, 0.0};
    u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x;
    u64 head = (16 - ((u64)data & 15)) % 16 / sizeof(Raw); /* up to where such loads may begin */
    if (head > count) head = count;
    const uint4 *vectors = (const uint4 *)(data + head);
    u64 whole = (count - head) / wide, tail = head + whole * wide;
    const u32 loads = run / wide, apart = pitch / wide;
    const bool is_one = run == count;
#define PLACE(AT) (is_one ? (AT) : (u64)((u32)(AT) / loads) * apart + (u32)(AT) % loads)
    int taken = 0;
    bool settled = false;
    u64 each = at;
    for (; each + (AHEAD - 1) * step < whole; each += AHEAD * step) {
        uint4 loaded[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) loaded[k] = vectors[PLACE(each + k * step)];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) take<Raw, Real>(s, loaded[k], settled, read);
        if (++taken == 8) { drain(s); taken = 0; }
    }
    for (; each < whole; each += step) take<Raw, Real>(s, vectors[PLACE(each)], settled, read);
    drain(s);
    for (u64 each = at; each < head + (count - tail); each += step) { /* what is left at both ends */
        Real x = read(data[each < head ? each : tail + each - head]);
        settle(s, x, settled);
        add(s, x);
    }
    drain(s);
    Joined<Real, u32> mine = {s.nans, s.posinf, s.neginf, s.zeros, s.finite, s.low, s.high, s.sum, s.squares};
    double center = s.shift;
    over_block(mine, center);
    Tally all;
    if (gridDim.x == 1) all = tally_of(mine, center); /* there is nobody to wait for */
    else {
        __shared__ bool is_last;
        if (threadIdx.x == 0) {
            write_joined(parts + (u64)blockIdx.x * PART, 1, mine, center);
            __threadfence();
            is_last = atomicAdd(ended, 1) == gridDim.x - 1;
        }
        __syncthreads();
        if (!is_last) return;
        __threadfence();
        Joined<double, double> joined = NOTHING;
        for (u32 each = threadIdx.x; each < gridDim.x; each += blockDim.x) join_part(joined, center, parts + (u64)each * PART, 1);
        over_block(joined, center);
        all = tally_of(joined, center);
        if (threadIdx.x == 0) *ended = 0; /* for the next kernel of this stream */
    }
    if (threadIdx.x != 0) return;
    row[0] = (double)count; row[1] = all.nans; row[2] = all.posinf; row[3] = all.neginf; row[4] = all.zeros;
    row[5] = all.low; row[6] = all.high; row[7] = all.mean * all.finite; row[8] = all.squares;
}

/* A dtype: how a number lies in memory, in what it is summed, and what it is. */
#define DTYPE(NAME, RAW, REAL, READ) \
struct NAME##_numbers { \
    typedef RAW Raw; \
    typedef REAL Real; \
    __device__ __forceinline__ REAL operator()(RAW x) const { return READ; } \
};
DTYPE(float32, float, float, x)
DTYPE(float64, double, double, x)
DTYPE(float16, u16, float, from_f16(x))
DTYPE(bfloat16, u16, float, from_bf16(x))
DTYPE(bool, u8, float, x != 0)
DTYPE(uint8, u8, float, x)
DTYPE(int8, signed char, float, x)
DTYPE(int16, short, float, x)
DTYPE(int32, int, double, x)
DTYPE(int64, long long, double, (double)x)

/* The kernel for a dtype; cuda.py says for which ones. */
#define STATISTICS(NAME) \
extern "C" __global__ void of_##NAME(const NAME##_numbers::Raw *data, u64 count, u64 run, u64 pitch, double *parts, u32 *ended, \
                                     double *row) \
{ measure<NAME##_numbers::Raw, NAME##_numbers::Real>(data, count, run, pitch, parts, ended, row, NAME##_numbers()); }
