//! Exports the uses of locks: permits, stripes, elections and jobs.

use crate::catalog;
use crate::export::collect::total::Total;
use crate::export::sink::Sink;

/// Exports the limits of semaphores, the numbers of stripes, the leaders, and the last runs of jobs.
pub(super) fn uses(sink: &mut impl Sink, totals: &[Total<'_>]) {
    for total in totals {
        for (site, place) in total.family.call_sites() {
            if let Some(limit) = place.permits.limit() {
                sink.gauge(&catalog::PERMITS_LIMIT, &[total.name, total.store, site], f64::from(limit));
            }
        }
    }
    let mut each = |metric, get: &dyn Fn(&Total<'_>) -> Option<f64>| {
        for total in totals {
            if let Some(value) = get(total) {
                sink.gauge(metric, &[total.name, total.store], value);
            }
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 permits")]
    each(&catalog::PERMITS_HELD, &|total| total.has_permits().then_some(total.live.permits as f64));
    each(&catalog::STRIPES, &|total| total.family.uses.stripes().map(f64::from));
    each(&catalog::LEADER, &|total| total.family.uses.is_election().then_some(f64::from(total.live.leads)));
    each(&catalog::CANDIDATES, &|total| total.family.uses.is_election().then_some(f64::from(total.live.candidates)));
    let led = |total: &Total<'_>| total.family.uses.is_election().then_some(f64::from(total.live.candidates_led));
    each(&catalog::CANDIDATES_LED, &led);
    let succeeded = |total: &Total<'_>| Some(total.family.uses.last_success()?.to_store_seconds(&total.at.clock));
    each(&catalog::JOB_LAST_SUCCESS, &succeeded);
    each(&catalog::JOB_PERIOD, &|total| total.family.uses.period().map(|period| period.as_secs_f64()));
}
