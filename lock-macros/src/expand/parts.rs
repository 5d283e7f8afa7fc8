//! The pieces that every form of function is expanded from.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned;
use syn::{Ident, LitStr, Path, Type};

use crate::args::{Action, Arg, Args, RenewArg, WaitArg};
use crate::duration::{DurationArg, constant};
use crate::function::{Function, nameable};

/// The arguments, next to what the function lends them.
pub(super) struct Parts<'a> {
    pub(super) args: &'a Args,
    /// The path of the library.
    krate: Path,
    /// The function's name, for the site registry.
    function: &'a Ident,
    /// What the body gives, as far as a body can name it.
    pub(super) returned: Type,
}

impl<'a> Parts<'a> {
    pub(super) fn new(args: &'a Args, function: &'a Function, returned: Type) -> Self {
        Self { args, krate: args.krate(), function: &function.sig.ident, returned: nameable(returned) }
    }

    /// The path of the module that expansions call.
    pub(super) fn private(&self) -> TokenStream {
        let krate = &self.krate;
        quote_spanned!(Span::mixed_site()=> #krate::__private)
    }

    /// The metric label.
    pub(super) fn label(&self) -> LitStr {
        if let Some(label) = &self.args.label {
            return label.value.clone();
        }
        let keys = self.args.keys.iter().flat_map(|keys| &keys.value);
        let templates: Vec<&LitStr> =
            self.args.key.iter().map(|key| &key.value).chain(keys).map(|template| &template.literal).collect();
        match templates.as_slice() {
            [only] => (*only).clone(),
            several => {
                let joined: Vec<String> = several.iter().map(|literal| literal.value()).collect();
                let span = self.args.keys.as_ref().map_or_else(Span::call_site, |keys| keys.name);
                LitStr::new(&joined.join(", "), span)
            }
        }
    }

    /// Whether the body may run without a lock, so that there may be no guard.
    pub(super) fn may_run_unlocked(&self) -> bool {
        self.args.when.is_some() || self.fails_open()
    }

    fn fails_open(&self) -> bool {
        matches!(self.args.on_error, Some(Arg { value: Action::RunUnlocked, .. }))
    }

    /// What happens when the lock is lost.
    pub(super) fn on_lost(&self, default: Action) -> Action {
        self.args.on_lost.as_ref().map_or(default, |option| option.value.clone())
    }

    /// The statements from the site registry to the guard. A refusal returns.
    pub(super) fn enter(&self, awaiting: bool) -> TokenStream {
        let span = Span::mixed_site();
        let private = self.private();
        let (site, request) = (self.site(), self.request());
        let request = match &self.args.when {
            None => request,
            Some(when) => {
                let when = &when.value;
                quote_spanned!(span=> {
                    let __when: bool = #when;
                    if __when { ::core::option::Option::Some(#request) } else { ::core::option::Option::None }
                })
            }
        };
        let request = match (&self.args.when, self.may_run_unlocked()) {
            (None, true) => quote_spanned!(span=> ::core::option::Option::Some(#request)),
            _ => request,
        };
        let fails_open = self.fails_open();
        let enter = match (self.may_run_unlocked(), awaiting) {
            (false, true) => quote_spanned!(span=> #private::enter(__request).await),
            (false, false) => quote_spanned!(span=> #private::enter_blocking(__request)),
            (true, true) => quote_spanned!(span=> #private::enter_maybe(__request, __site, #fails_open).await),
            (true, false) => quote_spanned!(span=> #private::enter_maybe_blocking(__request, __site, #fails_open)),
        };
        let refusal = self.refusal();
        // `return` of what never comes would be unreachable.
        let refusal = match self.returned {
            Type::Never(_) => refusal,
            _ => quote_spanned!(span=> return #refusal),
        };
        quote_spanned!(span=>
            let __site = #site;
            let __request = #request;
            let __guard = match #enter {
                ::core::result::Result::Ok(__guard) => __guard,
                ::core::result::Result::Err(__error) => #refusal,
            };
        )
    }

    /// The link-time entry that lets metrics exist before the first call.
    fn site(&self) -> TokenStream {
        let span = Span::mixed_site();
        let (private, krate) = (self.private(), &self.krate);
        let (label, function) = (self.label(), LitStr::new(&self.function.to_string(), Span::mixed_site()));
        let (ttl, stuck_after) = (known(&self.args.ttl), known(&self.args.stuck_after));
        quote_spanned!(span=>
            #private::register!(#krate::Site::new(
                #label,
                ::core::concat!(::core::module_path!(), "::", #function),
                #ttl,
                #stuck_after,
            ))
        )
    }

    fn request(&self) -> TokenStream {
        let span = Span::mixed_site();
        let private = self.private();
        let client = match &self.args.client {
            Some(client) => {
                let client = &client.value;
                let at = span.located_at(client.span());
                let client = quote_spanned!(at=> &(#client));
                quote_spanned!(span=> #private::client(#client))
            }
            None => quote_spanned!(span=> ::core::option::Option::None),
        };
        let settings = self.settings();
        if let Some(keys) = &self.args.keys {
            let keys = keys.value.iter().map(|template| template.render(&self.krate));
            quote_spanned!(span=> #private::request_all(#client, [#(#keys),*], __site, |__request| __request #settings))
        } else {
            let key = self.args.key.as_ref().map(|key| key.value.render(&self.krate));
            quote_spanned!(span=> #private::request(#client, #key, __site, |__request| __request #settings))
        }
    }

    /// The options as calls on a `LockRequest`.
    fn settings(&self) -> TokenStream {
        let span = Span::mixed_site();
        let private = self.private();
        let krate = &self.krate;
        let args = self.args;
        let mut calls = TokenStream::new();
        let mut with = |name: &str, option: &Option<Arg<DurationArg>>| {
            if let Some(Arg { value, .. }) = option {
                let name = Ident::new(name, span);
                calls.extend(quote_spanned!(span=> .#name(#value)));
            }
        };
        with("with_ttl", &args.ttl);
        with("with_max_hold", &args.max_hold);
        with("with_min_hold", &args.min_hold);
        with("with_stuck_after", &args.stuck_after);
        calls.extend(args.wait.as_ref().map(|wait| match &wait.value {
            WaitArg::None => quote_spanned!(span=> .with_wait(#krate::Wait::None)),
            WaitArg::Forever => quote_spanned!(span=> .with_wait(#krate::Wait::Forever)),
            WaitArg::AtMost(limit) => quote_spanned!(span=> .with_wait(#private::duration(#limit))),
        }));
        calls.extend(args.renew.as_ref().map(|renew| match &renew.value {
            RenewArg::Auto => quote_spanned!(span=> .with_renew(#krate::Renew::Auto)),
            RenewArg::Off => quote_spanned!(span=> .with_renew(#krate::Renew::Off)),
            RenewArg::Every(interval) => quote_spanned!(span=> .with_renew(#krate::Renew::Every(#interval))),
        }));
        if args.reentrant.as_ref().is_some_and(|reentrant| reentrant.value) {
            calls.extend(quote_spanned!(span=> .reentrant()));
        }
        calls
    }

    /// What a call returns that got no lock.
    fn refusal(&self) -> TokenStream {
        let default = Action::Error;
        let busy = self.args.on_busy.as_ref().map_or(&default, |option| &option.value);
        let other = self.args.on_error.as_ref().map_or(&default, |option| &option.value);
        if matches!((busy, other), (Action::Error, Action::Error | Action::RunUnlocked)) {
            return self.answer(&Action::Error);
        }
        let span = Span::mixed_site();
        let private = self.private();
        let (skipped, busy) = (matches!(other, Action::Skip), self.answer(busy));
        let other = self.answer(other);
        let note = skipped.then(|| quote_spanned!(span=> #private::skipped(&__error);));
        quote_spanned!(span=> if #private::is_busy(&__error) { #busy } else { #note #other })
    }

    /// The value that stands for `__error` in the return type.
    pub(super) fn answer(&self, action: &Action) -> TokenStream {
        let span = Span::mixed_site();
        let (private, krate, returned) = (self.private(), &self.krate, &self.returned);
        let never = matches!(returned, Type::Never(_));
        match action {
            Action::Skip => quote_spanned!(span=> <#returned as #private::Skip>::skip()),
            Action::Handler(handler) if never => quote_spanned!(span=> #private::handle(__error, #handler)),
            Action::Handler(handler) => quote_spanned!(span=> #private::handle::<#returned>(__error, #handler)),
            _ => match &self.args.map_err {
                Some(map) => {
                    let map = &map.value;
                    let at = span.located_at(returned.span());
                    quote_spanned!(at=> #private::mapped::<#returned>(__error, #map))
                }
                None => quote_spanned!(span=> <#returned as #krate::FromLockError>::from_lock_error(__error)),
            },
        }
    }

    /// A dead return, which lets the compiler take the type of `?` and `return` from the signature.
    pub(super) fn fake_return(&self) -> TokenStream {
        let (private, returned) = (self.private(), &self.returned);
        if matches!(returned, Type::Never(_) | Type::Infer(_)) {
            return TokenStream::new();
        }
        quote_spanned!(Span::mixed_site()=> if false { return #private::never::<#returned>(); })
    }

    /// Gives the guard the user's name.
    pub(super) fn name_guard(&self) -> TokenStream {
        self.args.guard.as_ref().map_or_else(TokenStream::new, |guard| {
            let guard = &guard.value;
            quote_spanned!(Span::mixed_site()=> let #guard = &__guard;)
        })
    }
}

/// The user's body in braces of ours: theirs would be "unused".
pub(super) fn body(function: &Function) -> TokenStream {
    let body = &function.body;
    let span = Span::mixed_site().located_at(function.body_span);
    quote_spanned!(span=> { #body })
}

fn known(option: &Option<Arg<DurationArg>>) -> TokenStream {
    match option.as_ref().and_then(|option| option.value.known()) {
        Some(value) => {
            let value = constant(value);
            quote_spanned!(Span::mixed_site()=> ::core::option::Option::Some(#value))
        }
        None => quote_spanned!(Span::mixed_site()=> ::core::option::Option::None),
    }
}
