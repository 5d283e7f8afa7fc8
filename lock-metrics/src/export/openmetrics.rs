//! The same series in the OpenMetrics format, the only one that supports exemplars.

use std::fmt::Write as _;

const OPENMETRICS: &str = "application/openmetrics-text";

/// The content type of the Prometheus text format.
pub(crate) const TEXT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The content type of OpenMetrics.
pub(crate) const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Rewrites Prometheus text. A counter is named without its suffix. A counter without the suffix gets no type. The end
/// is marked.
pub(crate) fn from_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 64);
    let mut help = None;
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // The type line that follows tells which metric this help belongs to.
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (family, kind) = match (kind, name.strip_suffix("_total")) {
                ("counter", Some(family)) => (family, "counter"),
                ("counter" | "untyped", _) => (name, "unknown"),
                (kind, _) => (name, kind),
            };
            let _ = writeln!(out, "# TYPE {family} {kind}");
            if let Some((_, help)) = help.take_if(|(of, _)| *of == name) {
                let _ = writeln!(out, "# HELP {family} {}", help.replace('"', "\\\""));
            }
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    out.push_str("# EOF\n");
    out
}

/// Returns whether a client prefers OpenMetrics, by its `Accept` header.
pub(crate) fn is_preferred(accept: &str) -> bool {
    let (mut open, mut text) = (0.0, 0.0);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let (mut weight, mut is_known) = (1.0, true);
        for part in parts {
            match part.split_once('=') {
                Some(("q", q)) => weight = q.parse().unwrap_or(0.0_f32),
                Some(("version", version)) => is_known = version == "1.0.0",
                _ => {}
            }
        }
        if kind.eq_ignore_ascii_case(OPENMETRICS) && is_known {
            open = weight.max(open);
        } else if kind.eq_ignore_ascii_case("text/plain") {
            text = weight.max(text);
        }
    }
    open > 0.0 && open >= text
}

#[cfg(test)]
mod tests {
    use super::{from_text, is_preferred};

    #[test]
    fn families_are_named_as_openmetrics_wants() {
        let text = "# HELP a_total Of \"a\".\n# TYPE a_total counter\na_total{x=\"1\"} 2\n\n# TYPE b counter\nb 1\n\n\
                    # HELP c How long.\n# TYPE c histogram\nc_bucket{le=\"+Inf\"} 1\nc_sum 2\nc_count 1\n";
        let expected = "# TYPE a counter\n# HELP a Of \\\"a\\\".\na_total{x=\"1\"} 2\n# TYPE b unknown\nb 1\n\
                        # TYPE c histogram\n# HELP c How long.\nc_bucket{le=\"+Inf\"} 1\nc_sum 2\nc_count 1\n# EOF\n";
        assert_eq!(from_text(text), expected);
        assert_eq!(from_text(""), "# EOF\n");
    }

    #[test]
    fn what_clients_prefer() {
        for (accept, expected) in [
            // Prometheus 2 and 3, with the default protocols.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                true,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                true,
            ),
            ("application/openmetrics-text", true),
            ("text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5", false),
            ("application/openmetrics-text;version=0.0.1", false),
            ("application/openmetrics-text;q=0", false),
            ("text/html,*/*;q=0.8", false),
            ("", false),
        ] {
            assert_eq!(is_preferred(accept), expected, "{accept}");
        }
    }
}
