//! The text that `docs = true` appends to the function's rustdoc.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;

use super::parts::Parts;
use crate::args::{Arg, KeysArg, RenewArg, show};

/// Returns the doc attributes of an annotated function.
pub(super) fn attributes(parts: &Parts<'_>) -> TokenStream {
    if matches!(parts.args.docs, Some(Arg { value: false, .. })) {
        return TokenStream::new();
    }
    let text = text(parts);
    quote_spanned!(Span::mixed_site()=> #[doc = #text])
}

fn text(parts: &Parts<'_>) -> String {
    let args = parts.args;
    let mut keys: Vec<String> =
        parts.templates().into_iter().map(|template| format!("`{}`", template.literal.value())).collect();
    if let (Some(stripes), [key]) = (&args.stripes, keys.as_mut_slice()) {
        key.insert_str(0, &format!("one of the {} stripes of ", stripes.value));
    }
    if let Some(Arg { value: KeysArg::Iterator(iterator), .. }) = &args.keys {
        keys.push(format!("each key of `{}`", iterator.to_token_stream()));
    }
    let ttl = match &args.ttl {
        Some(ttl) => ttl
            .value
            .known()
            .map_or_else(|| format!("`{}`", ttl.value.to_token_stream()), |known| format!("`{}`", show(known))),
        None => "the manager's default".to_owned(),
    };
    let renewed = match args.renew.as_ref().map(|renew| &renew.value) {
        Some(RenewArg::Off) => "never renewed",
        _ => "renewed while the body runs",
    };
    // The label is used inside a string of PromQL.
    let quoted = |label: &str| label.replace('\\', "\\\\").replace('"', "\\\"");
    let selector = match parts.label() {
        Some(label) => format!("lock=\"{}\"", quoted(&label.value())),
        None => format!("lock=~\".*::{}\"", parts.function.unraw()),
    };
    let quantile = |metric: &str| {
        format!(
            "histogram_quantile(0.99, sum by (le) (rate(distributed_lock_{metric}_seconds_bucket{{{selector}}}[5m])))"
        )
    };
    let grants = |path: &str| format!("sum(rate(distributed_lock_grants_total{{{selector}{path}}}[5m]))");
    format!(
        "\n# Distributed lock\n\nOne caller at a time holds {keys}.\n\n* lease: {ttl}, {renewed}\n* metric label: \
         `{selector}`\n\n```text\n# seconds waited, 99th percentile\n{wait}\n# seconds held, 99th percentile\n{hold}\n\
         # share of grants that had to wait\n{contended}\n  / {all}\n```\n",
        keys = keys.join(" and "),
        wait = quantile("wait"),
        hold = quantile("hold"),
        contended = grants(",path!=\"uncontended\""),
        all = grants(""),
    )
}
