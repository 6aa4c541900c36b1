// What CUDA has and C++ has not, so that kernels run on a CPU: the threads of a block take turns, and wait for one another.
#include <cmath>
#include <csetjmp>
#include <cstring>
#include <ucontext.h>
#include <vector>
using std::fabs;
using std::fmax;
using std::fmin;

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __shared__ static
#define __launch_bounds__(...)
#define asm(...) x = half_as_float(bits)

struct Index { unsigned x, y, z; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) ulonglong2 { unsigned long long x, y; };
static Index threadIdx, blockIdx, blockDim, gridDim;

// ---------------------------------------------------------------- threads that take turns

const unsigned BLOCK_THREADS = 256, WARPS = BLOCK_THREADS / 32, STACK = 1 << 16;
struct Barrier { unsigned arrived, passed; };
static Barrier of_block, of_warp[WARPS];
static ucontext_t fibers[BLOCK_THREADS];
static jmp_buf scheduler, paused[BLOCK_THREADS]; // a jump is many times as quick as a change of contexts
static bool has_begun[BLOCK_THREADS], has_ended[BLOCK_THREADS];
static double slots[BLOCK_THREADS];
static void (*body)(void *);
static void *arguments;

static void wait_for(Barrier &barrier, unsigned all)
{
    const unsigned mine = threadIdx.x, before = barrier.passed;
    if (++barrier.arrived == all) {
        barrier.arrived = 0;
        barrier.passed++;
    }
    while (barrier.passed == before)
        if (!_setjmp(paused[mine]))
            _longjmp(scheduler, 1);
}

static void __syncthreads() { wait_for(of_block, BLOCK_THREADS); }
static void __threadfence() {}
static int __syncthreads_or(int mine)
{
    static int found;
    __syncthreads();
    found = 0;
    __syncthreads();
    found |= mine != 0;
    __syncthreads();
    return found;
}
template <typename Value> static Value __ldcg(const Value *from) { return *from; }

template <typename Value> static Value __shfl_down_sync(unsigned, Value value, int step)
{
    static_assert(sizeof value <= sizeof slots[0], "a slot");
    const unsigned mine = threadIdx.x, warp = mine / 32, from = mine % 32 + (unsigned)step < 32 ? mine + (unsigned)step : mine;
    memcpy(&slots[mine], &value, sizeof value);
    wait_for(of_warp[warp], 32);
    memcpy(&value, &slots[from], sizeof value);
    wait_for(of_warp[warp], 32);
    return value;
}

template <typename Value> static Value __shfl_sync(unsigned, Value value, unsigned lane)
{
    const unsigned mine = threadIdx.x, warp = mine / 32;
    memcpy(&slots[mine], &value, sizeof value);
    wait_for(of_warp[warp], 32);
    memcpy(&value, &slots[warp * 32 + lane], sizeof value);
    wait_for(of_warp[warp], 32);
    return value;
}

static unsigned __ballot_sync(unsigned, bool mine)
{
    unsigned found = 0;
    for (unsigned lane = 0; lane < 32; lane++) found |= (unsigned)__shfl_sync(~0u, mine, lane) << lane;
    return found;
}
static void __syncwarp() { wait_for(of_warp[threadIdx.x / 32], 32); }

static void one_thread()
{
    const unsigned mine = threadIdx.x;
    body(arguments);
    has_ended[mine] = true;
    _longjmp(scheduler, 1);
}

static void run_block()
{
    static std::vector<char> stacks(BLOCK_THREADS * STACK);
    for (unsigned each = 0; each < BLOCK_THREADS; each++) {
        getcontext(&fibers[each]);
        fibers[each].uc_stack.ss_sp = stacks.data() + each * STACK;
        fibers[each].uc_stack.ss_size = STACK;
        makecontext(&fibers[each], one_thread, 0);
        has_ended[each] = has_begun[each] = false;
    }
    static unsigned left, each; // a jump would lose what lies in registers
    for (left = BLOCK_THREADS; left;)
        for (each = 0; each < BLOCK_THREADS; each++) {
            if (has_ended[each])
                continue;
            threadIdx.x = each;
            if (!_setjmp(scheduler)) {
                if (has_begun[each])
                    _longjmp(paused[each], 1);
                has_begun[each] = true;
                setcontext(&fibers[each]);
            }
            left -= has_ended[each];
        }
}

static void run_kernel(unsigned blocks, void (*kernel)(void *), void *given)
{
    blockDim.x = BLOCK_THREADS;
    gridDim.x = blocks;
    body = kernel;
    arguments = given;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
        run_block();
}

// ---------------------------------------------------------------- functions

template <typename To, typename From> static To same_bits(From from)
{
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }
static unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static double __longlong_as_double(long long bits) { return same_bits<double>(bits); }
static long long __double_as_longlong(double x) { return same_bits<long long>(x); }
static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static unsigned atomicAdd(unsigned *to, unsigned more) { return (*to += more) - more; }
static unsigned atomicMin(unsigned *to, unsigned other)
{
    const unsigned before = *to;
    *to = other < before ? other : before;
    return before;
}
static int __ffs(unsigned bits) { return __builtin_ffs((int)bits); }
static float half_as_float(unsigned short bits)
{
    const unsigned exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                       : exponent     ? std::ldexp(1.0f + fraction / 1024.0f, (int)exponent - 15)
                                      : std::ldexp((float)fraction, -24);
    return bits >> 15 ? -size : size;
}

// ---------------------------------------------------------------- kernels, to be called from Python

#define SKETCH_ON_CPU(NAME, KERNEL)                                                                                   \
    extern "C" void KERNEL##_of_##NAME(unsigned blocks, const void *data, const Order *order, u32 wanted,             \
                                       const double *known, double *parts, double *row)                               \
    {                                                                                                                 \
        auto call = [&] { KERNEL##_##NAME((const NAME##_numbers::Raw *)data, *order, wanted, known, parts, row); };   \
        run_kernel(blocks, [](void *given) { (*(decltype(call) *)given)(); }, &call);                                 \
    }
#define ON_CPU(NAME)                                                                                                  \
    extern "C" void statistics_of_##NAME(unsigned blocks, const void *data, u64 count, u64 run, u64 pitch, double *parts, \
                                         u32 *ended, double *row)                                                     \
    {                                                                                                                 \
        auto call = [&] { of_##NAME((const NAME##_numbers::Raw *)data, count, run, pitch, parts, ended, row); };      \
        run_kernel(blocks, [](void *given) { (*(decltype(call) *)given)(); }, &call);                                 \
    }                                                                                                                 \
    SKETCH_ON_CPU(NAME, sketch) SKETCH_ON_CPU(NAME, even_sketch) SKETCH_ON_CPU(NAME, short_sketch) SKETCH_ON_CPU(NAME, large_sketch)
#define JOINING_ON_CPU                                                                                                \
    extern "C" void join_on_cpu(unsigned rows, const double *slots, u64 slot, double *table, u64 width)               \
    {                                                                                                                 \
        auto join = [&] { join_sketches(slots, slot, table, width); };                                                \
        auto fill = [&] { fill_sketches(table, width); };                                                             \
        run_kernel(rows, [](void *given) { (*(decltype(join) *)given)(); }, &join);                                   \
        run_kernel(rows, [](void *given) { (*(decltype(fill) *)given)(); }, &fill);                                   \
    }
