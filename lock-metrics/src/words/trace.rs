//! Traces of the application. Only the caller of an acquire knows them.

use std::fmt;
use std::sync::Arc;

use crate::words::time::Moment;

/// The placeholder of the id in a link.
const PLACE: &str = "{trace_id}";

/// Identifies a trace, as in W3C Trace Context: sixteen bytes, not all of them zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceId([u8; 16]);

impl TraceId {
    /// Returns `None` for zeros, which mean that no trace exists.
    fn new(id: [u8; 16]) -> Option<Self> {
        (id != [0; 16]).then_some(Self(id))
    }

    /// Returns the id in 32 digits.
    pub(crate) fn to_hex(self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }
}

/// A sample whose trace is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exemplar {
    pub(crate) trace: TraceId,
    pub(crate) value: f64,
    pub(crate) at: Moment,
}

/// The source of traces, and the address of their viewer.
#[derive(Clone, Default)]
pub(crate) struct Traces {
    pub(crate) current: Option<Arc<dyn Fn() -> Option<[u8; 16]> + Send + Sync>>,
    pub(crate) link: Option<String>,
}

impl Traces {
    /// Returns the trace of the caller.
    pub(crate) fn current(&self) -> Option<TraceId> {
        self.current.as_ref().and_then(|current| current()).and_then(TraceId::new)
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
        assert_eq!(TraceId(id).to_hex(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!((TraceId::new(id), TraceId::new([0; 16])), (Some(TraceId(id)), None));
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
