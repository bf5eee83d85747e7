// Kernels that count, and put rows in order, in the fast memory of a multiprocessor. `cuda.py` compiles and starts them.
//
// Exact values take three of them. Rows of a point are counted by coarse bucket (`count_rows`), written to their bucket
// (`spread_rows`), and put in order inside it (`sort_buckets`). A bucket is one of the map that `make_maps` lays out:
// its upper bits are the coarse bucket of about FINE rows, its lower bits one of the FINE bins in there. Certified values
// take `place_rows`, and `sort_lists` for the rows that are near.

typedef unsigned long long u64;

#define THREADS 512
#define PIECE_BITS 9
#define COARSE_BITS 7
#define AT_ONCE 4        // places that a thread loads together
#define FINE_BITS 11
#define FINE (1 << FINE_BITS)
#define MOST_ROWS 6144   // of a coarse bucket
#define MOST_IN_BIN 64
#define TILE 4096        // rows that a block writes to their buckets together
#define WARP 32

// What belongs to a point, and how to read a distance off a tile.
struct Points {
    const double* tile;         // (points, n): distances, or inner products
    const double* row_norms;    // squared norms, for products
    const double* point_norms;
    const long long* first;     // the map from bit patterns to buckets
    const long long* span;
    const long long* up;
    const u64* knots;
    double unit;                // 0 for distances; for products, what a squared difference counts: 1, or 1/2
    double slack, spread, least; // what a product can be off, see products.py
    int n, coarse;
};

__device__ __forceinline__ double distance_at(const Points& points, long long p, int row)
{
    const double entry = points.tile[p * points.n + row];
    if (points.unit == 0.0) return entry;
    const double found = fma(-2.0, entry, points.row_norms[row] + points.point_norms[p]) * points.unit;
    return found > 0.0 ? found : 0.0;
}

// Two rows whose distances from products differ by no more than this may be in the other order; as in products.py.
__device__ __forceinline__ double open_gap(const Points& points, long long p, double distance)
{
    if (points.unit == 0.0) return 0.0;
    const double norms = 3.0 * points.point_norms[p] + 2.0 * distance / points.unit + points.least;
    return 2.02 * (points.slack * points.unit * norms + points.spread * sqrt(norms));
}

__device__ __forceinline__ unsigned bucket_of(const Points& points, long long p, double distance)
{
    const long long span = points.span[p];
    long long past = __double_as_longlong(distance) - points.first[p];
    past = past < 0 ? 0 : past > span ? span : past;
    const u64 place = (u64)past << points.up[p];
    const u64 knot = points.knots[(p << PIECE_BITS) + (long long)(place >> (63 - PIECE_BITS))];
    return (unsigned)knot + (unsigned)__umul64hi(place << (1 + PIECE_BITS), knot >> 32);
}

// Exclusive sums of `size` counters in shared memory, in place; `sums` has room for a warp.
__device__ __forceinline__ void add_up(unsigned* counter, int size, unsigned* sums)
{
    const int each = (size + THREADS - 1) / THREADS, begin = threadIdx.x * each;
    unsigned own = 0;
    for (int k = begin; k < begin + each && k < size; k++) own += counter[k];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    unsigned before = own;
    for (int step = 1; step < WARP; step *= 2) {
        const unsigned other = __shfl_up_sync(0xFFFFFFFFu, before, step);
        if (lane >= step) before += other;
    }
    if (lane == WARP - 1) sums[warp] = before;
    __syncthreads();
    before -= own;
    for (int k = 0; k < warp; k++) before += sums[k];
    for (int k = begin; k < begin + each && k < size; k++) {
        const unsigned here = counter[k];
        counter[k] = before;
        before += here;
    }
    __syncthreads();
}

// Puts a few rows in order, by distance and then by number.
__device__ __forceinline__ void sort_bin(double* distance, unsigned* element, int begin, int end)
{
    for (int k = begin + 1; k < end; k++) {
        const double d = distance[k];
        const unsigned e = element[k];
        int at = k;
        while (at > begin && (distance[at - 1] > d || (distance[at - 1] == d && element[at - 1] > e))) {
            distance[at] = distance[at - 1];
            element[at] = element[at - 1];
            at--;
        }
        distance[at] = d;
        element[at] = e;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) count_rows(const Points points, unsigned* counts)
{
    extern __shared__ __align__(16) unsigned shared[];
    const long long p = blockIdx.y;
    const int n = points.n, coarse = points.coarse;
    const int begin = (int)((long long)n * blockIdx.x / gridDim.x);
    const int end = (int)((long long)n * (blockIdx.x + 1) / gridDim.x);
    for (int b = threadIdx.x; b < coarse; b += THREADS) shared[b] = 0;
    __syncthreads();
    #pragma unroll 4
    for (int i = begin + threadIdx.x; i < end; i += THREADS)
        atomicAdd(shared + (bucket_of(points, p, distance_at(points, p, i)) >> FINE_BITS), 1u);
    __syncthreads();
    for (int b = threadIdx.x; b < coarse; b += THREADS)
        if (shared[b]) atomicAdd(counts + p * coarse + b, shared[b]);
}

// Writes distances, and 2 * row + match, to the buckets, whose ends `ends` moves from the first place to behind the last.
extern "C" __global__ void __launch_bounds__(THREADS) spread_rows(
    const Points points, const int* codes, const int* targets, unsigned* ends, double* distance, unsigned* order)
{
    extern __shared__ __align__(16) unsigned shared[];
    __shared__ unsigned sums[WARP];
    const long long p = blockIdx.y;
    const int n = points.n, coarse = points.coarse, start = blockIdx.x * TILE;
    double* far = (double*)shared;
    unsigned *element = shared + 2 * TILE, *place = element + TILE, *count = place + TILE, *shift = count + coarse;
    for (int b = threadIdx.x; b < coarse; b += THREADS) count[b] = 0;
    __syncthreads();
    unsigned bucket[TILE / THREADS], within[TILE / THREADS];
    double at[TILE / THREADS];
    #pragma unroll
    for (int k = 0; k < TILE / THREADS; k++) {
        const int i = start + k * THREADS + threadIdx.x;
        if (i < n) {
            at[k] = distance_at(points, p, i);
            bucket[k] = bucket_of(points, p, at[k]) >> FINE_BITS;
            within[k] = atomicAdd(count + bucket[k], 1u);
        }
    }
    __syncthreads();
    for (int b = threadIdx.x; b < coarse; b += THREADS)
        shift[b] = count[b] ? atomicAdd(ends + p * coarse + b, count[b]) : 0u;
    __syncthreads();
    add_up(count, coarse, sums);
    const int target = targets[p];
    #pragma unroll
    for (int k = 0; k < TILE / THREADS; k++) {
        const int i = start + k * THREADS + threadIdx.x;
        if (i < n) {
            const unsigned in = count[bucket[k]] + within[k];
            far[in] = at[k];
            element[in] = 2u * (unsigned)i + (codes[i] == target);
            place[in] = shift[bucket[k]] + within[k];
        }
    }
    __syncthreads();
    const int size = n - start < TILE ? n - start : TILE;
    for (int k = threadIdx.x; k < size; k += THREADS) {
        const long long to = p * n + place[k];
        distance[to] = far[k];
        order[to] = element[k];
    }
}

// Puts the rows of a bucket in order, by distance and then by number. Neighbours of which one matches and the other does
// not, and whose order a product leaves open, are listed as point << 32 | rank of the second; `unsettled` is set for
// points with ties of that kind, with a bucket or a bin that is too long, or with too many neighbours to list.
extern "C" __global__ void __launch_bounds__(THREADS) sort_buckets(
    const Points points, const unsigned* starts, double* distances, unsigned* order, u64* listed, unsigned* found,
    int capacity, int average, int* unsettled)
{
    extern __shared__ __align__(16) unsigned shared[];
    __shared__ unsigned sums[WARP];
    const long long p = blockIdx.y;
    const int n = points.n, coarse = points.coarse;
    const unsigned lo = starts[p * coarse + blockIdx.x];
    const unsigned hi = (int)blockIdx.x + 1 < coarse ? starts[p * coarse + blockIdx.x + 1] : (unsigned)n;
    const int size = (int)(hi - lo);
    if (size == 0) return;
    if (size > MOST_ROWS) {
        if (threadIdx.x == 0) unsettled[p] = 1;
        return;
    }
    double *distance = (double*)shared, *far = distances + p * n + lo;
    unsigned *element = shared + 2 * MOST_ROWS, *bin = element + MOST_ROWS, *row = order + p * n + lo;
    for (int b = threadIdx.x; b < FINE; b += THREADS) bin[b] = 0;
    __syncthreads();
    unsigned slot[MOST_ROWS / THREADS];
    #pragma unroll
    for (int k = 0; k < MOST_ROWS / THREADS; k++) {
        const int j = k * THREADS + threadIdx.x;
        if (j < size) {
            const unsigned in = bucket_of(points, p, far[j]) & (FINE - 1);
            slot[k] = in << 16 | atomicAdd(bin + in, 1u);
        }
    }
    __syncthreads();
    add_up(bin, FINE, sums);
    #pragma unroll
    for (int k = 0; k < MOST_ROWS / THREADS; k++) {
        const int j = k * THREADS + threadIdx.x;
        if (j < size) {
            const unsigned at = bin[slot[k] >> 16] + (slot[k] & 0xFFFFu);
            distance[at] = far[j];
            element[at] = row[j];
        }
    }
    __syncthreads();
    for (int b = threadIdx.x; b < FINE; b += THREADS) {
        const int begin = (int)bin[b], end = b + 1 < FINE ? (int)bin[b + 1] : size;
        if (end - begin > MOST_IN_BIN) {
            unsettled[p] = 1;
            continue;
        }
        sort_bin(distance, element, begin, end);
    }
    __syncthreads();
    for (int k = threadIdx.x; k < size; k += THREADS) {
        far[k] = distance[k];
        row[k] = element[k];
        if (k == 0 || ((element[k] ^ element[k - 1]) & 1u) == 0u) continue;
        if (distance[k] - distance[k - 1] > open_gap(points, p, distance[k])) continue;
        if (points.unit == 0.0) {
            if (average) unsettled[p] = 1;
            continue;
        }
        const unsigned at = atomicAdd(found, 1u);
        if (at < (unsigned)capacity) listed[at] = (u64)p << 32 | (u64)(lo + k);
        else unsettled[p] = 1;
    }
}

// Puts lists of rows in order, by distance and then by number; the size of a list is a power of two, 1,024 at least. Rows
// are counted in bins of equal width, then in bins of about four rows each that follow from these counts, and put in order
// inside such a bin. A list with a bin that is too long, as one with many ties, is put in order as a whole.
extern "C" __global__ void __launch_bounds__(THREADS) sort_lists(
    double* distances, unsigned* rows, const int* lengths, int size)
{
    extern __shared__ __align__(16) unsigned shared[];
    __shared__ unsigned sums[WARP];
    __shared__ u64 least, most;
    __shared__ int too_long;
    const int bins = size / 4, count = lengths[blockIdx.x * 32] < size ? lengths[blockIdx.x * 32] : size;
    double *distance = (double*)shared, *far = distances + (long long)blockIdx.x * size;
    unsigned *row = shared + 2 * size, *mine = rows + (long long)blockIdx.x * size;
    unsigned *before = row + size, *end = before + bins;
    for (int b = threadIdx.x; b < bins; b += THREADS) before[b] = end[b] = 0;
    if (threadIdx.x == 0) {
        least = ~0ull;
        most = 0;
        too_long = 0;
    }
    __syncthreads();
    u64 low = ~0ull, high = 0;
    for (int k = threadIdx.x; k < count; k += THREADS) {
        const u64 pattern = (u64)__double_as_longlong(far[k]);
        low = pattern < low ? pattern : low;
        high = pattern > high ? pattern : high;
    }
    if (low <= high) {
        atomicMin(&least, low);
        atomicMax(&most, high);
    }
    __syncthreads();
    low = least;
    // Bins have 2**shift patterns each; of a place inside them, 20 bits are enough.
    int shift = 0;
    while (count && (most - low) >> shift >= (u64)bins) shift++;
    const int spare = shift > 20 ? shift - 20 : 0;
    for (int k = threadIdx.x; k < count; k += THREADS)
        atomicAdd(before + (((u64)__double_as_longlong(far[k]) - low) >> shift), 1u);
    __syncthreads();
    add_up(before, bins, sums);
    auto bin_of = [&](double at) {
        const u64 past = (u64)__double_as_longlong(at) - low;
        const unsigned b = (unsigned)(past >> shift);
        const unsigned in = (b + 1 < bins ? before[b + 1] : (unsigned)count) - before[b];
        const u64 part = (past - ((u64)b << shift)) >> spare;
        return (before[b] + (unsigned)((part * in) >> (shift - spare))) * (unsigned)bins / (unsigned)count;
    };
    for (int k = threadIdx.x; k < count; k += THREADS) atomicAdd(end + bin_of(far[k]), 1u);
    __syncthreads();
    add_up(end, bins, sums);
    for (int k = threadIdx.x; k < count; k += THREADS) {
        const unsigned at = atomicAdd(end + bin_of(far[k]), 1u);
        distance[at] = far[k];
        row[at] = mine[k];
    }
    for (int k = count + threadIdx.x; k < size; k += THREADS) {
        distance[k] = __longlong_as_double(0x7FF0000000000000ll);
        row[k] = 0;
    }
    __syncthreads();
    for (int b = threadIdx.x; b < bins; b += THREADS) {
        const int start = b ? (int)end[b - 1] : 0, stop = (int)end[b];
        if (stop - start > MOST_IN_BIN) too_long = 1;
        else sort_bin(distance, row, start, stop);
    }
    __syncthreads();
    for (int run = 2; too_long && run <= size; run *= 2) {
        for (int step = run / 2; step > 0; step /= 2) {
            for (int k = threadIdx.x; k < size / 2; k += THREADS) {
                const int near = 2 * k - (k & (step - 1)), next = near + step;
                const double a = distance[near], b = distance[next];
                const unsigned c = row[near], d = row[next];
                if ((a > b || (a == b && c > d)) == ((near & run) == 0)) {
                    distance[near] = b;
                    distance[next] = a;
                    row[near] = d;
                    row[next] = c;
                }
            }
            __syncthreads();
        }
    }
    for (int k = threadIdx.x; k < size; k += THREADS) {
        far[k] = distance[k];
        mine[k] = row[k];
    }
}

// Puts rows into the buckets of certified values by their places, which Triton kernels store (bucket_kernels.py), and
// counts them: rows of a bucket in the lower half of a counter, matches in the upper half. A row's cell is 2 * bucket +
// match; near rows share the cell 2 * n_buckets and are listed. Rows whose bucket is open are listed, too. Lists that are
// too short count the rows they should have. Counters in memory that all programs share take about twelve picoseconds an
// addition on a large GPU, counters in the fast memory of one multiprocessor less than two.
extern "C" __global__ void __launch_bounds__(1024) place_rows(
    const int* __restrict__ places, const u64* __restrict__ knots, const int* __restrict__ codes,
    const int* __restrict__ targets, unsigned short* __restrict__ cells, unsigned* __restrict__ counts,
    int* near_count, int* __restrict__ near_row, int* open_count, int* __restrict__ open_row, int n, int n_buckets,
    int room, int open_room)
{
    extern __shared__ __align__(16) unsigned shared[];
    __shared__ u64 map[1 << COARSE_BITS];
    __shared__ int near, open;
    const long long p = blockIdx.y;
    const int begin = (int)((long long)n * blockIdx.x / gridDim.x);
    const int end = (int)((long long)n * (blockIdx.x + 1) / gridDim.x);
    const int target = targets[p];
    const bool alone = gridDim.x == 1;
    int *nears = alone ? &near : near_count + p * 32, *opens = alone ? &open : open_count + p * 32;
    for (int i = threadIdx.x; i < 1 << COARSE_BITS; i += blockDim.x) map[i] = knots[(p << COARSE_BITS) + i];
    for (int i = threadIdx.x; i < n_buckets; i += blockDim.x) shared[i] = 0;
    if (threadIdx.x == 0) near = open = 0;
    __syncthreads();
    for (int first = begin + threadIdx.x; first < end; first += AT_ONCE * blockDim.x) {
        int place[AT_ONCE];
        unsigned match[AT_ONCE];
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int i = first + k * blockDim.x;
            place[k] = i < end ? places[p * n + i] : 0;
            match[k] = i < end && codes[i] == target;
        }
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int i = first + k * blockDim.x;
            if (i >= end) break;
            unsigned cell = 2u * n_buckets;
            if (place[k] < 0) {
                const int slot = atomicAdd(nears, 1);
                if (slot < room) near_row[p * room + slot] = i;
            } else {
                const u64 knot = map[(unsigned)place[k] >> (31 - COARSE_BITS)];
                const unsigned inside = ((unsigned)place[k] & ~7u) << (1 + COARSE_BITS), buckets = (unsigned)(knot >> 32);
                const unsigned bucket = ((unsigned)knot & 0xFFFFu) + __umulhi(inside, buckets);
                const bool edge = (inside * buckets) >> ((unsigned)knot >> 16) <= buckets;
                cell = 2u * bucket + match[k];
                if ((place[k] & 4) || ((place[k] & 2) && edge)) {
                    const int slot = atomicAdd(opens, 1);
                    if (slot < open_room) open_row[p * open_room + slot] = i;
                } else {
                    atomicAdd(shared + bucket, 1u + (match[k] << 16));
                }
            }
            cells[p * n + i] = (unsigned short)cell;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0 && alone) {
        near_count[p * 32] = near;
        open_count[p * 32] = open;
    }
    for (int i = threadIdx.x; i < n_buckets; i += blockDim.x) {
        if (alone) counts[p * n_buckets + i] = shared[i];
        else if (shared[i]) atomicAdd(counts + p * n_buckets + i, shared[i]);
    }
}
