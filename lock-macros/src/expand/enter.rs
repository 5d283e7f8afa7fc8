//! The code that acquires the lock. It is the same for every form of function.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::Type;

use super::parts::Parts;
use super::refusal::{answer, refusal};
use crate::args::Action;

/// Returns the statements from the site registry to the guard. A refusal returns from the function.
pub(super) fn enter(parts: &Parts<'_>, awaiting: bool) -> TokenStream {
    let span = Span::mixed_site();
    let private = parts.private();
    let (site, request) = (parts.site(), parts.request());
    let request = match &parts.args.when {
        None => request,
        Some(when) => {
            let when = &when.value;
            quote_spanned!(span=> {
                let __when: bool = #when;
                if __when { ::core::option::Option::Some(#request) } else { ::core::option::Option::None }
            })
        }
    };
    let request = match (&parts.args.when, parts.may_run_unlocked()) {
        (None, true) => quote_spanned!(span=> ::core::option::Option::Some(#request)),
        _ => request,
    };
    let fails_open = parts.fails_open();
    let enter = match (parts.may_run_unlocked(), awaiting) {
        (false, true) => quote_spanned!(span=> #private::enter(__request).await),
        (false, false) => quote_spanned!(span=> #private::enter_blocking(__request)),
        (true, true) => quote_spanned!(span=> #private::enter_maybe(__request, __site, #fails_open).await),
        (true, false) => quote_spanned!(span=> #private::enter_maybe_blocking(__request, __site, #fails_open)),
    };
    let refusal = refusal(parts);
    // For a function that never returns, a `return` statement would be unreachable.
    let refusal = match parts.returned {
        Type::Never(_) => refusal,
        _ => quote_spanned!(span=> return #refusal),
    };
    if let Some(version) = parts.version() {
        let skipped = answer(parts, &Action::Skip);
        let enter = match awaiting {
            true => quote_spanned!(span=> #private::enter_once(__request, &__version).await),
            false => quote_spanned!(span=> #private::enter_once_blocking(__request, &__version)),
        };
        return quote_spanned!(span=>
            let __site = #site;
            let __version = #version;
            let __request = #request;
            let __guard = match #enter {
                ::core::result::Result::Ok(::core::option::Option::Some(__guard)) => __guard,
                ::core::result::Result::Ok(::core::option::Option::None) => return #skipped,
                ::core::result::Result::Err(__error) => #refusal,
            };
        );
    }
    quote_spanned!(span=>
        let __site = #site;
        let __request = #request;
        let __guard = match #enter {
            ::core::result::Result::Ok(__guard) => __guard,
            ::core::result::Result::Err(__error) => #refusal,
        };
    )
}
