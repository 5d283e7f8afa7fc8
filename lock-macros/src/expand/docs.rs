//! What `docs = true` appends to the function's rustdoc.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::LitStr;

use crate::args::{Arg, Args, RenewArg, show};

/// The doc attributes of an annotated function.
pub(super) fn attributes(args: &Args, label: &LitStr) -> TokenStream {
    if matches!(args.docs, Some(Arg { value: false, .. })) {
        return TokenStream::new();
    }
    let text = text(args, &label.value());
    quote_spanned!(Span::mixed_site()=> #[doc = #text])
}

fn text(args: &Args, label: &str) -> String {
    let keys = args.keys.iter().flat_map(|keys| &keys.value);
    let keys: Vec<String> = args
        .key
        .iter()
        .map(|key| &key.value)
        .chain(keys)
        .map(|template| format!("`{}`", template.literal.value()))
        .collect();
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
    // The label stands inside a string of PromQL.
    let selector = format!("lock=\"{}\"", label.replace('\\', "\\\\").replace('"', "\\\""));
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
