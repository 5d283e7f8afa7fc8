use super::Failovers;

#[test]
fn whoever_takes_over_is_no_master_that_was_added() {
    let failovers = Failovers::default();
    for (masters, of_three, told) in [
        (&[0, 1][..], 0, &[][..]),
        // Added; drained; one replaced by another.
        (&[0, 1, 2], 0, &[]),
        (&[0, 1], 0, &[]),
        (&[0, 3], 1, &[3]),
        (&[0, 3], 1, &[]),
        // And back.
        (&[0, 1], 1, &[1]),
        (&[0, 3], 3, &[3]),
    ] {
        failovers.found(masters.iter().copied().collect());
        assert_eq!((failovers.of(3), &*failovers.take()), (of_three, told), "{masters:?}");
    }
    assert_eq!((failovers.of(0), failovers.of(1)), (0, 2));
}
