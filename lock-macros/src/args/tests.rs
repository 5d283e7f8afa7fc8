use quote::quote;

use super::{Action, Args, FunctionForm, table_of_options};

fn complaints(tokens: proc_macro2::TokenStream) -> Vec<String> {
    let (args, mut errors) = Args::parse(tokens);
    errors.extend(args.check(FunctionForm::Asynchronous));
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn takes_every_option() {
    let tokens = quote! {
        key = "a:<x>", ttl = "10s", wait = "none", on_busy = "error", on_error = |e| Err(e.into()), on_lost = "ignore",
        map_err = MyError::lock, renew = "2s", max_hold = LIMIT, min_hold = "1s", min_hold_on = "ok", reentrant, on_refused = None, guard = lock,
        client = self.locks, label = "a", stuck_after = "1m", docs = false, crate = ::lock_core,
    };
    assert_eq!(complaints(tokens), Vec::<String>::new());
}

#[test]
fn reports_all_mistakes_at_once() {
    let found = complaints(quote!(tll = "10s", wait = , ttl = "3s", ttl = "2s", renew = "10", key = 5, guard = 1));
    assert_eq!(found.len(), 6, "{found:?}");
    assert!(found[0].starts_with(r#"unknown argument "tll"; did you mean "ttl"? Known: key, keys, "#));
}

#[test]
fn on_refused_sets_what_is_not_set() {
    let (args, errors) = Args::parse(quote!(on_lost = "ignore", on_refused = Err(Busy), on_busy = "skip"));
    assert!(errors.is_empty());
    let action = |option: &Option<super::Arg<Action>>| option.as_ref().unwrap().value.clone();
    assert!(matches!(action(&args.on_busy), Action::Skip));
    assert!(matches!(action(&args.on_error), Action::Value(_)));
    assert!(matches!(action(&args.on_lost), Action::Ignore));
}

#[test]
fn every_option_is_in_the_table() {
    let table = table_of_options!();
    for name in super::options::KNOWN {
        assert!(table.contains(&format!("\n| `{name}` | ")), "{name}");
    }
    assert_eq!(table.lines().count(), super::options::KNOWN.len() + 2);
}

#[test]
fn bounds_are_checked_when_known() {
    for (tokens, part) in [
        (quote!(ttl = "200ms"), r#"ttl 200ms leaves 66 ms between renewals; use at least "1s", or renew = false"#),
        (quote!(ttl = "20ms", renew = false), "at least \"50ms\""),
        (quote!(ttl = "31d"), "limit of 30d"),
        (quote!(ttl = "10s", renew = "6s"), "at most half"),
        (quote!(ttl = "10s", renew = "0s"), "never pause"),
        (quote!(max_hold = "0s"), "leave it out"),
        (quote!(at_most_every = "1h", on_busy = "error"), "drop on_busy"),
        (quote!(wait = "1s", once_at = fire), "drop wait"),
        (quote!(at_most_every = "1h", once_at = fire), "names the run"),
        (quote!(at_most_every = "999ms"), "at least \"1s\""),
        (
            quote!(at_most_every = "31d"),
            "a job every 31d would keep its key for longer than the limit of 30d; use once_at",
        ),
        (quote!(once_every = "34d"), "a job every 34d would keep"),
        (quote!(once_every = "1h", at_most_every = "1h"), "for starts at any time"),
        (quote!(once_every = "1h", wait = "1s"), "drop wait"),
        (quote!(retry_failed), "add at_most_every, once_every or once_at"),
        (quote!(stripes = 1), "between 2 and 4096"),
        (quote!(stripes = N), "written here"),
        (quote!(stuck_after = "0s"), "every lock stuck"),
    ] {
        let found = complaints(tokens);
        assert!(found.len() == 1 && found[0].contains(part), "{found:?}");
    }
    assert!(complaints(quote!(ttl = "200ms", renew = false)).is_empty());
    assert!(complaints(quote!(ttl = TTL, renew = "6s")).is_empty());
    assert!(complaints(quote!(ttl = "10s", min_hold = "1h")).is_empty());
}
