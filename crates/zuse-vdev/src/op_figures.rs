//! Latencies and sizes of a device's operations: the data of `zpool iostat -l -q -r -w`.
//!
//! ```text
//!   latency[k]  operations that took less than 2^(k+1) nanoseconds and not less than 2^k
//!   single[k]   operations of one buffer of at most 2^(k+9) bytes, joined[k] those that were joined out of several
//! ```
//! Operations go to the host at once. Zuse has no queue of its own, so there is no queueing time
//! besides this.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use zuse_base::Counter;

/// Buckets of latencies: up to 2^37 nanoseconds, more than two minutes.
pub const LATENCIES: usize = 37;
/// Buckets of sizes: 512 bytes to 16 MiB.
pub const SIZES: usize = 16;
/// log2 of the smallest size.
const SMALLEST: u32 = 9;

/// An operation that takes longer is a slow one.
const SLOW: Duration = Duration::from_secs(30);

/// Counts operations of one kind of one device.
#[derive(Debug)]
pub struct OpCounters {
    nanoseconds: Counter,
    bytes: Counter,
    latency: [Counter; LATENCIES],
    single: [Counter; SIZES],
    joined: [Counter; SIZES],
    active: AtomicU32,
    slow: Counter,
}

impl Default for OpCounters {
    fn default() -> Self {
        Self {
            nanoseconds: Counter::default(),
            bytes: Counter::default(),
            latency: std::array::from_fn(|_| Counter::default()),
            single: std::array::from_fn(|_| Counter::default()),
            joined: std::array::from_fn(|_| Counter::default()),
            active: AtomicU32::new(0),
            slow: Counter::default(),
        }
    }
}

/// What [`OpCounters`] counted since the pool was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpFigures {
    /// Time of all operations together.
    pub nanoseconds: u64,
    /// Bytes of all operations together.
    pub bytes: u64,
    /// Operations by time.
    pub latency: Vec<u64>,
    /// Operations of one buffer by size.
    pub single: Vec<u64>,
    /// Operations that were joined, by size.
    pub joined: Vec<u64>,
    /// Operations under way.
    pub active: u64,
    /// Operations that took longer than 30 seconds, failed ones included.
    pub slow: u64,
}

/// Bucket of a value whose smallest one is 2^`first`, rounded up (`up`) or down.
fn bucket(value: u64, first: u32, up: bool, buckets: usize) -> usize {
    let power = if up {
        u64::BITS - value.saturating_sub(1).leading_zeros()
    } else {
        value.max(1).ilog2()
    };
    (power.saturating_sub(first) as usize).min(buckets - 1)
}

impl OpCounters {
    /// Runs an operation of `bytes` in `parts` buffers, and counts it if it succeeds.
    pub fn time<T, E>(
        &self,
        bytes: usize,
        parts: usize,
        op: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.active.fetch_add(1, Relaxed);
        let from = Instant::now();
        let result = op();
        let took = from.elapsed();
        self.active.fetch_sub(1, Relaxed);
        self.note(took, bytes, parts, result.is_ok());
        result
    }

    /// Counts an operation.
    fn note(&self, took: Duration, bytes: usize, parts: usize, succeeded: bool) {
        if took > SLOW {
            self.slow.bump();
        }
        if succeeded {
            let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.nanoseconds.add(took);
            self.bytes.add(bytes as u64);
            self.latency[bucket(took, 0, false, LATENCIES)].bump();
            let sizes = if parts > 1 {
                &self.joined
            } else {
                &self.single
            };
            sizes[bucket(bytes as u64, SMALLEST, true, SIZES)].bump();
        }
    }

    /// The figures now.
    pub fn figures(&self) -> OpFigures {
        let all = |counters: &[Counter]| counters.iter().map(Counter::get).collect();
        OpFigures {
            nanoseconds: self.nanoseconds.get(),
            bytes: self.bytes.get(),
            latency: all(&self.latency),
            single: all(&self.single),
            joined: all(&self.joined),
            active: u64::from(self.active.load(Relaxed)),
            slow: self.slow.get(),
        }
    }
}

impl OpFigures {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.latency.iter().sum()
    }

    /// Adds those of another device.
    pub fn add(&mut self, other: &Self) {
        let add = |mine: &mut Vec<u64>, theirs: &[u64]| {
            mine.resize(mine.len().max(theirs.len()), 0);
            mine.iter_mut().zip(theirs).for_each(|(m, t)| *m += t);
        };
        self.nanoseconds += other.nanoseconds;
        self.bytes += other.bytes;
        self.active += other.active;
        self.slow += other.slow;
        add(&mut self.latency, &other.latency);
        add(&mut self.single, &other.single);
        add(&mut self.joined, &other.joined);
    }
}

/// The kinds of operations of a device.
#[derive(Debug, Default)]
pub struct AllOps<T> {
    /// Reads of data.
    pub reads: T,
    /// Writes of data.
    pub writes: T,
    /// Writes of labels and uberblocks.
    pub labels: T,
    /// Discards.
    pub trims: T,
}

impl<T> AllOps<T> {
    /// As an array: reads, writes, labels, trims.
    pub fn each(&self) -> [&T; 4] {
        [&self.reads, &self.writes, &self.labels, &self.trims]
    }
}

#[cfg(test)]
mod tests {
    use super::{LATENCIES, OpCounters, SIZES, SLOW, bucket};

    #[test]
    fn a_value_goes_into_the_bucket_that_its_table_says() {
        for (value, at) in [(0, 0), (1, 0), (2, 1), (3, 1), (1023, 9), (1024, 10)] {
            assert_eq!(bucket(value, 0, false, LATENCIES), at, "{value} ns");
        }
        assert_eq!(bucket(u64::MAX, 0, false, LATENCIES), LATENCIES - 1);
        for (value, at) in [(1, 0), (512, 0), (513, 1), (1024, 1), (4096, 3)] {
            assert_eq!(bucket(value, 9, true, SIZES), at, "{value} bytes");
        }
        assert_eq!(bucket(1 << 30, 9, true, SIZES), SIZES - 1);
    }

    #[test]
    fn slow_operations_are_counted_even_when_they_fail() {
        let ops = OpCounters::default();
        ops.note(SLOW, 512, 1, true);
        assert_eq!(ops.figures().slow, 0);
        let longer = SLOW + std::time::Duration::from_nanos(1);
        ops.note(longer, 512, 1, true);
        ops.note(longer, 512, 1, false);
        let mut both = ops.figures();
        assert_eq!((both.slow, both.count()), (2, 2));
        both.add(&ops.figures());
        assert_eq!(both.slow, 4);
    }

    #[test]
    fn operations_are_counted_when_they_succeed() {
        let ops = OpCounters::default();
        let fine: Result<(), ()> = ops.time(4096, 1, || Ok(()));
        let joined: Result<(), ()> = ops.time(8192, 2, || Ok(()));
        let failed: Result<(), ()> = ops.time(512, 1, || Err(()));
        assert!(fine.is_ok() && joined.is_ok() && failed.is_err());
        let figures = ops.figures();
        assert_eq!(figures.latency.iter().sum::<u64>(), 2);
        assert_eq!((figures.single[3], figures.joined[4]), (1, 1));
        assert_eq!(figures.single.iter().sum::<u64>(), 1);
        assert_eq!(figures.active, 0);
        assert_eq!((figures.count(), figures.bytes), (2, 12288));
        let mut twice = figures.clone();
        twice.add(&figures);
        assert_eq!(twice.joined[4], 2);
    }
}
