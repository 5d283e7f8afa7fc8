//! Plain functions.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::Type;
use syn::spanned::Spanned;

use super::enter::enter;
use super::parts::{Parts, closure};
use super::refusal::answer;
use crate::args::Action;
use crate::function::Function;
use crate::returned::has_opaque;

/// Returns the block of a plain function: blocking acquire, the body as a closure, release.
pub(super) fn block(parts: &Parts<'_>, function: &Function) -> TokenStream {
    let (span, private) = (Span::mixed_site(), parts.private());
    let (enter, name_guard) = (enter(parts, false), parts.name_guard());
    let returned = &parts.returned;
    let never = matches!(returned, Type::Never(_));
    let probe = (!never && !has_opaque(&function.returned())).then(|| {
        let at = span.located_at(returned.span());
        quote_spanned!(at=> {
            use #private::NotAFuture as _;
            #private::synchronous(#private::Probe::<#returned>::new().verdict());
        })
    });
    let closure = closure(function, &quote_spanned!(span=> -> #returned));
    // Passed directly, so that the compiler treats it as an `FnOnce` and borrows can leave it.
    let run = quote_spanned!(span=> #private::call(&__guard, #closure));
    let on_lost = parts.on_lost(Action::Error);
    let answer = answer(parts, &on_lost);
    let output = quote_spanned!(span=> ::core::option::Option::Some(&__out));
    let release = parts.release(&output, false);
    let end = match on_lost {
        Action::Ignore => quote_spanned!(span=>
            let _ = #release;
            __out
        ),
        _ => quote_spanned!(span=>
            match #release {
                ::core::result::Result::Ok(()) => __out,
                ::core::result::Result::Err(__error) => #answer,
            }
        ),
    };
    let min_hold_off = parts.min_hold_off();
    let (min_hold_on, job_ended) = (parts.min_hold_on(&output), parts.job_ended(&output));
    if never {
        return quote_spanned!(span=> { #enter #name_guard #run });
    }
    quote_spanned!(span=> {
        #probe
        #enter
        #min_hold_off
        let __out = { #name_guard #run };
        #min_hold_on
        #job_ended
        #end
    })
}
