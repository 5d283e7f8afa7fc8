use proc_macro2::TokenStream;
use quote::quote;

use super::{Action, Args, FunctionForm, table_of_options};

fn complaints(tokens: TokenStream) -> Vec<String> {
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
        (quote!(ttl = "10s", renew = "9ms"), "at least \"10ms\""),
        (quote!(ttl = "10s", renew = "0s"), "load the store"),
        (quote!(min_hold = "31d"), "limit of 30d"),
        (quote!(permits = 1_000_001), "limit of 1000000"),
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

#[test]
fn each_mistake_is_told_once() {
    for (tokens, sentence) in [
        (quote!(key =), "\"key\" needs a value: write key = …"),
        (quote!(key = , ttl = "5s"), "\"key\" needs a value: write key = …"),
        (quote!(keys =), "\"keys\" needs a value: write keys = …"),
        (quote!(key = ["a", "b"]), "key names one lock; write keys = […] for several"),
        (
            quote!(crate = locks::<u8>),
            "expected the path of a crate or module, such as crate = ::lock_core, and found `locks :: < u8 >`",
        ),
        (
            quote!(crate = "locks::<u8>"),
            "expected the path of a crate or module, such as crate = ::lock_core, and found `locks::<u8>`",
        ),
        (quote!(wait = "5no\u{200b}ne"), "unknown unit \"no\\u{200b}ne\" in \"5no\\u{200b}ne\""),
        (
            quote!(mode = "re\u{202e}ad"),
            "unknown mode \"re\\u{202e}ad\"; did you mean \"read\"? Known: \"read\", \"write\"",
        ),
        (quote!(r#ttl = "1s", ttl = "1s"), "\"ttl\" is given twice; keep one"),
    ] {
        let found = complaints(tokens);
        assert!(found.len() == 1 && found[0].starts_with(sentence), "{found:?}");
    }
}

/// Includes forms that nest without brackets.
fn nesting() -> [TokenStream; 8] {
    [
        quote!(!),
        quote!(&),
        quote!(|x|),
        quote!(if a {} else),
        quote!(x =),
        quote!(x+),
        quote!(return),
        quote!(x as A<fn() ->),
    ]
}

fn when(expr: &TokenStream) -> Vec<String> {
    complaints(quote!(key = "k", when = #expr))
}

fn in_brackets(depth: usize, inner: TokenStream) -> TokenStream {
    (0..depth).fold(inner, |inner, _| quote!((#inner)))
}

#[test]
fn what_would_crash_the_compiler_is_refused() {
    assert!(when(&in_brackets(64, quote!(x))).is_empty());
    assert_eq!(
        when(&in_brackets(65, quote!(x))),
        ["brackets are nested more than 64 deep in the attribute; put an expression that is long into a function"]
    );
    for unit in nesting() {
        let long: TokenStream = std::iter::repeat_n(unit.clone(), 700).collect();
        let found = when(&long);
        assert!(
            found.len() == 1 && found[0].starts_with("the attribute has more than 600 tokens"),
            "{unit}: {found:?}"
        );
    }
}

#[test]
fn what_is_accepted_fits_the_stack_of_the_compiler() {
    let read = || {
        for unit in nesting() {
            let count = 500 / unit.clone().into_iter().count();
            let long: TokenStream = std::iter::repeat_n(unit, count).chain([quote!(x)]).collect();
            when(&in_brackets(60, long));
        }
    };
    // The compiler runs on 8 MB, and has used some of them when it calls the macro.
    std::thread::Builder::new().stack_size(6 << 20).spawn(read).unwrap().join().unwrap();
}
