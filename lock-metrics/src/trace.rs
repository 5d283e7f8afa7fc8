//! Traces of the application: the one thing about an acquire that only its caller knows.

use std::fmt;
use std::sync::Arc;

use crate::time::Moment;

/// What stands for the id in a link.
const PLACE: &str = "{trace_id}";

/// Identifies a trace, as in W3C Trace Context: sixteen bytes, of which zeros alone mean none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TraceId([u8; 16]);

impl TraceId {
    /// Returns the id in 32 digits, `None` if there is no trace.
    pub(crate) fn to_hex(self) -> Option<String> {
        (!self.is_none()).then(|| format!("{:032x}", u128::from_be_bytes(self.0)))
    }

    pub(crate) fn is_none(self) -> bool {
        self.0 == [0; 16]
    }
}

/// A sample whose trace is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exemplar {
    pub(crate) trace: TraceId,
    pub(crate) value: f64,
    pub(crate) at: Moment,
}

/// Where traces come from, and where people look at them.
#[derive(Clone, Default)]
pub(crate) struct Traces {
    pub(crate) current: Option<Arc<dyn Fn() -> Option<[u8; 16]> + Send + Sync>>,
    pub(crate) link: Option<String>,
}

impl Traces {
    /// Returns the trace of the caller.
    pub(crate) fn current(&self) -> TraceId {
        self.current.as_ref().and_then(|current| current()).map(TraceId).unwrap_or_default()
    }

    /// Returns whether samples may have traces.
    pub(crate) fn are_known(&self) -> bool {
        self.current.is_some()
    }

    /// Returns whether the link leads to a trace.
    pub(crate) fn link_is_valid(&self) -> bool {
        self.link
            .as_ref()
            .is_none_or(|link| (link.starts_with("https://") || link.starts_with("http://")) && link.contains(PLACE))
    }

    /// Returns the address of a trace.
    pub(crate) fn link(&self, trace_id: &str) -> Option<String> {
        self.link.as_ref().map(|link| link.replace(PLACE, trace_id))
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("known", &self.are_known()).field("link", &self.link).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::{TraceId, Traces};

    #[test]
    fn ids_are_written_as_other_programs_write_them() {
        let id = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes();
        assert_eq!(TraceId(id).to_hex().as_deref(), Some("0af7651916cd43dd8448eb211c80319c"));
        assert_eq!(TraceId([0; 16]).to_hex(), None);
    }

    #[test]
    fn a_link_leads_to_a_trace() {
        let with = |link: &str| Traces { current: None, link: Some(link.to_owned()) };
        for wrong in ["", "tempo/{trace_id}", "javascript:alert('{trace_id}')", "https://tempo.example/"] {
            assert!(!with(wrong).link_is_valid(), "{wrong}");
        }
        let traces = with("https://tempo.example/trace/{trace_id}?org=1");
        assert!(traces.link_is_valid());
        assert_eq!(traces.link("0af7").as_deref(), Some("https://tempo.example/trace/0af7?org=1"));
    }
}
