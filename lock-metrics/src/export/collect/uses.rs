//! What locks are used for: permits, stripes, elections and jobs.

use crate::catalog;
use crate::export::collect::Total;
use crate::export::sink::Sink;

/// Exports the limits of semaphores, the numbers of stripes, who leads, and when jobs ran.
pub(super) fn uses(sink: &mut impl Sink, totals: &[Total<'_>]) {
    for total in totals {
        for (site, place) in total.family.call_sites() {
            if let Some(limit) = place.permits.limit() {
                sink.gauge(&catalog::PERMITS_LIMIT, &[total.name, site], f64::from(limit));
            }
        }
    }
    for total in totals {
        if let Some(stripes) = total.family.uses.stripes() {
            sink.gauge(&catalog::STRIPES, &[total.name], f64::from(stripes));
        }
    }
    for total in totals {
        if total.family.uses.is_election() {
            sink.gauge(&catalog::LEADER, &[total.name], f64::from(total.live.leads));
        }
    }
    for total in totals {
        if let Some(at) = total.family.uses.last_success() {
            sink.gauge(&catalog::JOB_LAST_SUCCESS, &[total.name], at.to_unix_seconds());
        }
    }
    for total in totals {
        if let Some(period) = total.family.uses.period() {
            sink.gauge(&catalog::JOB_PERIOD, &[total.name], period.as_secs_f64());
        }
    }
}
