//! `async fn`.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::Type;

use super::enter::enter;
use super::parts::{Parts, body};
use super::refusal::answer;
use crate::args::Action;
use crate::function::Function;

/// Returns the block of an `async fn`: acquire, run the boxed body beside the lost signal, release.
pub(super) fn block(parts: &Parts<'_>, function: &Function) -> TokenStream {
    let (span, private) = (Span::mixed_site(), parts.private());
    let (fake_return, user_body) = (parts.fake_return(), body(function));
    // In the user's source, as the closure of `closure` is.
    let block = quote_spanned!(function.body_span=> async move { #fake_return #user_body });
    // Boxed, because a block pinned in place would hold large arguments twice.
    let inner = quote_spanned!(span=> #private::boxed(#block));
    let steps = steps(parts, &inner);
    quote_spanned!(span=> { #steps })
}

/// Returns the statements around a boxed body, in a place that may await.
pub(super) fn steps(parts: &Parts<'_>, inner: &TokenStream) -> TokenStream {
    let (span, private) = (Span::mixed_site(), parts.private());
    let (enter, name_guard) = (enter(parts, true), parts.name_guard());
    let on_lost = parts.on_lost(Action::Cancel);
    let answer = answer(parts, &on_lost);
    let never = matches!(parts.returned, Type::Never(_));
    let run = match on_lost {
        Action::Ignore | Action::Error => quote_spanned!(span=> #private::run_to_end(&__guard, #inner).await),
        _ => quote_spanned!(span=> #private::drive(&__guard, #inner).await),
    };
    let output = match on_lost {
        Action::Ignore | Action::Error => quote_spanned!(span=> ::core::option::Option::Some(&*__out)),
        _ => quote_spanned!(span=> __out.as_deref().ok()),
    };
    let release = parts.release(&output, true);
    // The output decides whether the work is marked, before the output is joined with the lock's outcome.
    let (before, left) = match parts.args.once_for {
        Some(_) => (quote_spanned!(span=> let __left = #release;), quote_spanned!(span=> __left)),
        None => (TokenStream::new(), release.clone()),
    };
    let end = match on_lost {
        Action::Ignore if never => quote_spanned!(span=> *__out),
        Action::Ignore => quote_spanned!(span=>
            let _ = #release;
            *__out
        ),
        Action::Error => quote_spanned!(span=>
            match #release {
                ::core::result::Result::Ok(()) => *__out,
                ::core::result::Result::Err(__error) => #answer,
            }
        ),
        _ if never => quote_spanned!(span=>
            match __out {
                ::core::result::Result::Ok(_) => ::core::unreachable!(),
                ::core::result::Result::Err(__error) => #answer,
            }
        ),
        _ => quote_spanned!(span=>
            // This also runs after a loss. At the end of a max_hold, only the release frees the key.
            #before
            match #private::join_outcome(__out, #left) {
                ::core::result::Result::Ok(__out) => __out,
                ::core::result::Result::Err(__error) => #answer,
            }
        ),
    };
    let (min_hold_off, min_hold_on) = (parts.min_hold_off(), parts.min_hold_on(&output));
    let job_ended = parts.job_ended(&output);
    quote_spanned!(span=>
        #enter
        #min_hold_off
        let __out = { #name_guard #run };
        #min_hold_on
        #job_ended
        #end
    )
}
