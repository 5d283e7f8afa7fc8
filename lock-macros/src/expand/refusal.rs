//! The return value of a call that did not get its lock, or lost it.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::Type;
use syn::spanned::Spanned;

use super::parts::Parts;
use crate::args::Action;

/// Returns the value of a call that got no lock because of `__error`.
pub(super) fn refusal(parts: &Parts<'_>) -> TokenStream {
    let default = Action::Error;
    let busy = parts.args.on_busy.as_ref().map_or(&default, |option| &option.value);
    let other = parts.args.on_error.as_ref().map_or(&default, |option| &option.value);
    if matches!((busy, other), (Action::Error, Action::Error | Action::RunUnlocked)) {
        return answer(parts, &Action::Error);
    }
    let (span, private) = (Span::mixed_site(), parts.private());
    let (busy, other) = (answer(parts, busy), unless_mistaken(parts, other));
    quote_spanned!(span=> if #private::is_busy(&__error) { #busy } else { #other })
}

/// Like [`answer`], but a value never hides a mistake in the program. Otherwise a job whose `main` forgot to install a
/// manager would silently never run.
fn unless_mistaken(parts: &Parts<'_>, action: &Action) -> TokenStream {
    let (span, private, returned) = (Span::mixed_site(), parts.private(), &parts.returned);
    let never = matches!(returned, Type::Never(_));
    match action {
        Action::Path(path) if never => quote_spanned!(span=> #private::handle(__error, #path)),
        Action::Path(path) => {
            let mistaken = mistaken(parts);
            let at = span.located_at(path.span());
            quote_spanned!(at=> match #private::answer_unless_mistaken::<#returned, _, _>(__error, #path) {
                ::core::result::Result::Ok(__answer) => __answer,
                ::core::result::Result::Err(__error) => #mistaken,
            })
        }
        Action::Skip | Action::Value(_) => {
            let (mistaken, answer) = (mistaken(parts), answer(parts, action));
            quote_spanned!(span=>
                if #private::is_mistake(&__error) {
                    #mistaken
                } else {
                    #private::skipped(&__error);
                    #answer
                }
            )
        }
        _ => answer(parts, action),
    }
}

/// Returns a mistake in the program if the return type can carry it, otherwise panics with it.
fn mistaken(parts: &Parts<'_>) -> TokenStream {
    let (span, private, returned) = (Span::mixed_site(), parts.private(), &parts.returned);
    if parts.args.map_err.is_some() {
        return answer(parts, &Action::Error);
    }
    if matches!(returned, Type::Never(_) | Type::Infer(_)) {
        return quote_spanned!(span=> #private::mistake(&__error, __site));
    }
    quote_spanned!(span=> {
        use #private::CannotCarry as _;
        #private::Mistake::<#returned>::new(__error, __site).refuse()
    })
}

/// Returns the value that stands for `__error` in the return type.
pub(super) fn answer(parts: &Parts<'_>, action: &Action) -> TokenStream {
    let span = Span::mixed_site();
    let (private, krate, returned) = (parts.private(), &parts.krate, &parts.returned);
    let never = matches!(returned, Type::Never(_));
    match action {
        Action::Skip => quote_spanned!(span=> <#returned as #private::Skip>::skip()),
        Action::Handler(handler) | Action::Path(handler) if never => {
            quote_spanned!(span=> #private::handle(__error, #handler))
        }
        Action::Handler(handler) => quote_spanned!(span=> #private::handle::<#returned>(__error, #handler)),
        Action::Path(path) => {
            let at = span.located_at(path.span());
            quote_spanned!(at=> #private::answer::<#returned, _, _>(__error, #path))
        }
        Action::Value(value) if never => quote_spanned!(span=> { let _ = __error; #value }),
        Action::Value(value) => quote_spanned!(span=> #private::value::<#returned>(__error, || #value)),
        _ => match &parts.args.map_err {
            Some(map) => {
                let map = &map.value;
                let at = span.located_at(returned.span());
                quote_spanned!(at=> #private::mapped::<#returned>(__error, #map))
            }
            None => quote_spanned!(span=> <#returned as #krate::FromLockError>::from_lock_error(__error)),
        },
    }
}
