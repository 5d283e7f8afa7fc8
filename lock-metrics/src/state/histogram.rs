//! Fixed buckets, filled on the hot path and added up at each scrape.

use std::time::Duration;

/// How many samples fell into a bucket, and their sum.
///
/// The sum is kept per bucket, so that a bucket can be passed to another recorder, which accepts only samples. Passing
/// the mean `count` times keeps bucket, count and sum right.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bucket {
    pub(crate) count: u64,
    pub(crate) sum: f64,
}

/// A histogram of `N` buckets: one for each upper bound, and one for larger samples.
#[derive(Clone, Debug)]
pub(crate) struct Histogram<const N: usize>([Bucket; N]);

impl<const N: usize> Default for Histogram<N> {
    fn default() -> Self {
        Self([Bucket::default(); N])
    }
}

impl<const N: usize> Histogram<N> {
    /// Counts a sample, and returns its bucket. `bounds` come from the catalogue: one fewer than the buckets.
    pub(crate) fn record(&mut self, bounds: &[f64], value: f64) -> usize {
        let index = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len()).min(N - 1);
        let bucket = &mut self.0[index];
        bucket.count += 1;
        bucket.sum += value;
        index
    }

    pub(crate) fn record_duration(&mut self, bounds: &[f64], value: Duration) -> usize {
        self.record(bounds, value.as_secs_f64())
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine.count += theirs.count;
            mine.sum += theirs.sum;
        }
    }

    pub(crate) fn buckets(&self) -> &[Bucket] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{Bucket, Histogram};

    #[test]
    fn bounds_belong_to_the_bucket_below() {
        let bounds = [0.5, 1.0];
        let mut histogram = Histogram::<3>::default();
        for value in [0.0, 0.5, 0.75, 1.0, 1.5] {
            histogram.record(&bounds, value);
        }
        let expected = [(2, 0.5), (2, 1.75), (1, 1.5)].map(|(count, sum)| Bucket { count, sum });
        assert_eq!(histogram.buckets(), expected);
    }
}
