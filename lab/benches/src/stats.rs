//! Medians and percentiles.

/// Returns the median, or `None` for an empty list. NaN is left out.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some(f64::midpoint(values[low], values[high]))
}

/// Returns the value that `per_mille` of a thousand sorted values do not exceed.
pub(crate) fn percentile(sorted: &[u64], per_mille: usize) -> u64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// Divides, `None` by zero.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[cfg(test)]
mod tests {
    use super::{median, percentile};

    #[test]
    fn medians_and_percentiles() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, f64::NAN]), Some(2.5));
        let sorted: Vec<u64> = (1..=100).collect();
        assert_eq!((percentile(&sorted, 500), percentile(&sorted, 990), percentile(&sorted, 1000)), (50, 99, 100));
        assert_eq!(percentile(&[], 500), 0);
    }
}
