//! The parts from which every form of function is expanded.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Expr, Ident, LitStr, Path, Type};

use crate::args::{Action, Arg, Args, DurabilityArg, KeysArg, MinHoldOn, ModeArg, RenewArg, WaitArg};
use crate::duration::{DurationArg, constant};
use crate::function::Function;
use crate::returned::nameable;
use crate::template::Template;

/// The arguments, with the properties of the function that they need.
pub(super) struct Parts<'a> {
    pub(super) args: &'a Args,
    /// The path of the library.
    pub(super) krate: Path,
    /// The function's name, for the site registry.
    pub(super) function: &'a Ident,
    /// The type of the body's result, as far as a body can name it.
    pub(super) returned: Type,
}

impl<'a> Parts<'a> {
    pub(super) fn new(args: &'a Args, function: &'a Function, returned: Type) -> Self {
        Self { args, krate: args.krate(), function: &function.sig.ident, returned: nameable(returned) }
    }

    /// Returns the path of the module that expansions call.
    pub(super) fn private(&self) -> TokenStream {
        let krate = &self.krate;
        quote_spanned!(Span::mixed_site()=> #krate::attribute)
    }

    /// Returns the templates of the key or keys, or none if the keys are an iterator.
    pub(super) fn templates(&self) -> Vec<&Template> {
        match (&self.args.key, &self.args.keys) {
            (Some(key), _) => vec![&key.value],
            (None, Some(Arg { value: KeysArg::Templates(keys), .. })) => keys.iter().collect(),
            (None, _) => Vec::new(),
        }
    }

    /// Returns the metric label, unless it is the function's name.
    pub(super) fn label(&self) -> Option<LitStr> {
        if let Some(label) = &self.args.label {
            return Some(label.value.clone());
        }
        let literals: Vec<&LitStr> = self.templates().into_iter().map(|template| &template.literal).collect();
        match literals.as_slice() {
            [] => None,
            [only] => Some((*only).clone()),
            several => {
                let joined: Vec<String> = several.iter().map(|literal| literal.value()).collect();
                let span = self.args.keys.as_ref().map_or_else(Span::call_site, |keys| keys.name);
                Some(LitStr::new(&joined.join(", "), span))
            }
        }
    }

    /// Returns whether the body may run without a lock, so that the guard may be missing.
    pub(super) fn may_run_unlocked(&self) -> bool {
        self.args.when.is_some() || self.fails_open()
    }

    pub(super) fn fails_open(&self) -> bool {
        matches!(self.args.on_error, Some(Arg { value: Action::RunUnlocked, .. }))
    }

    /// Returns the action for a lost lock.
    pub(super) fn on_lost(&self, default: Action) -> Action {
        self.args.on_lost.as_ref().map_or(default, |option| option.value.clone())
    }

    /// Returns the link-time entry, which makes metrics exist before the first call.
    pub(super) fn site(&self) -> TokenStream {
        let span = Span::mixed_site();
        let private = self.private();
        let label = match self.label() {
            Some(label) => label.to_token_stream(),
            None => {
                let function = self.function.unraw().to_string();
                quote_spanned!(span=> ::core::concat!(::core::module_path!(), "::", #function))
            }
        };
        let (ttl, stuck_after) = (known(&self.args.ttl), known(&self.args.stuck_after));
        quote_spanned!(span=> #private::register!(#label, #ttl, #stuck_after))
    }

    pub(super) fn request(&self) -> TokenStream {
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
        match (&self.args.key, &self.args.keys) {
            (Some(key), _) => {
                let rendered = key.value.render(&self.krate);
                let (Some(stripes), Ok(name)) = (&self.args.stripes, key.value.name_of_stripes()) else {
                    return quote_spanned!(span=> #private::request(#client, #rendered, __site, #settings));
                };
                let (count, id_at) = (stripes.value, key.value.prefix().unwrap_or_default().len());
                quote_spanned!(span=>
                    #private::request_striped(#client, (#name, #id_at, #count), #rendered, __site, #settings)
                )
            }
            (None, Some(Arg { value: KeysArg::Iterator(keys), .. })) => {
                let at = span.located_at(keys.span());
                let keys = quote_spanned!(at=> #private::keys(#keys));
                quote_spanned!(span=> #private::request_all(#client, #keys, __site, #settings))
            }
            (None, _) => {
                let keys = self.templates().into_iter().map(|template| template.render(&self.krate));
                quote_spanned!(span=> #private::request_all(#client, [#(#keys),*], __site, #settings))
            }
        }
    }

    /// Returns the options as a function from `LockRequest` to `LockRequest`.
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
            WaitArg::Known(limit) => quote_spanned!(span=> .with_wait(#limit)),
            WaitArg::Expr(limit) => {
                let at = span.located_at(limit.span());
                let limit = quote_spanned!(at=> #private::wait(#limit));
                quote_spanned!(span=> .with_wait(#limit))
            }
        }));
        calls.extend(args.renew.as_ref().map(|renew| match &renew.value {
            RenewArg::Auto => quote_spanned!(span=> .with_renew(#krate::Renew::Auto)),
            RenewArg::Off => quote_spanned!(span=> .with_renew(#krate::Renew::Off)),
            RenewArg::Every(interval) => quote_spanned!(span=> .with_renew(#krate::Renew::Every(#interval))),
        }));
        calls.extend(args.durability.as_ref().map(|durability| {
            let durability = match &durability.value {
                DurabilityArg::Master => quote_spanned!(span=> #krate::Durability::Master),
                DurabilityArg::Acks(replicas) => quote_spanned!(span=> #krate::Durability::Acks(#replicas)),
                DurabilityArg::AllReplicas => quote_spanned!(span=> #krate::Durability::AllReplicas),
                DurabilityArg::Fsync { replicas } => {
                    quote_spanned!(span=> #krate::Durability::Fsync { local: true, replicas: #replicas })
                }
                DurabilityArg::Expr(value) => {
                    let at = span.located_at(value.span());
                    quote_spanned!(at=> #private::durability(#value))
                }
            };
            quote_spanned!(span=> .with_durability(#durability))
        }));
        if args.reentrant.as_ref().is_some_and(|reentrant| reentrant.value) {
            calls.extend(quote_spanned!(span=> .reentrant()));
        }
        let request = quote_spanned!(span=> __request #calls);
        let mut request = self.sharing(&request);
        if let Some(Arg { value: period, .. }) = &args.at_most_every {
            request = quote_spanned!(span=> #private::at_most_every(#request, #period));
        }
        if let Some(Arg { value: period, .. }) = &args.once_every {
            request = quote_spanned!(span=> #private::once_every(#request, #period));
        }
        if args.once_for.is_some() {
            request = quote_spanned!(span=> #private::once_for(#request));
        }
        if let Some(Arg { value: time, .. }) = &args.once_at {
            let at = span.located_at(time.span());
            request = quote_spanned!(at=> #private::once_at(#request, #time));
        }
        if args.run_once_even_if.is_some() {
            request = quote_spanned!(span=> #private::even_if_crashed(#request));
        }
        quote_spanned!(span=> |__request| #request)
    }

    /// Returns the request for a shared lock, if the lock is shared.
    fn sharing(&self, request: &TokenStream) -> TokenStream {
        let span = Span::mixed_site();
        let private = self.private();
        let number = |value: &Expr| {
            let at = span.located_at(value.span());
            quote_spanned!(at=> #private::permits(#value))
        };
        match (&self.args.mode, &self.args.permits) {
            (Some(Arg { value: ModeArg::Read, .. }), _) => quote_spanned!(span=> #private::read(#request)),
            (_, Some(permits)) => {
                let permits = number(&permits.value);
                let weight = self.args.weight.as_ref().map(|weight| number(&weight.value));
                let weight = weight.map(|weight| quote_spanned!(span=> .with_weight(#weight)));
                quote_spanned!(span=> #private::semaphore(#request, #permits) #weight)
            }
            (_, None) => request.clone(),
        }
    }

    /// Returns an unreachable return statement, from which the compiler infers the type of `?` and `return`.
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

    /// Makes `min_hold` depend on success: it is off until the body has succeeded.
    pub(super) fn min_hold_off(&self) -> Option<TokenStream> {
        let private = self.private();
        self.on_ok().then(|| quote_spanned!(Span::mixed_site()=> #private::min_hold_off(&__guard);))
    }

    /// Like [`min_hold_off`](Self::min_hold_off), but turns it on again after a success. `output` is an expression of
    /// type `Option<&Ret>`.
    pub(super) fn min_hold_on(&self, output: &TokenStream) -> Option<TokenStream> {
        let private = self.private();
        let at = Span::mixed_site().located_at(self.returned.span());
        self.on_ok().then(|| quote_spanned!(at=> #private::min_hold_on(&__guard, #output);))
    }

    /// Reports how the run of a job ended. `output` is an expression of type `Option<&Ret>`.
    pub(super) fn job_ended(&self, output: &TokenStream) -> Option<TokenStream> {
        let private = self.private();
        let span = Span::mixed_site();
        let runs = self.args.job().is_some() || self.args.once_for.is_some();
        runs.then(|| {
            quote_spanned!(span=> {
                #[allow(unused_imports)]
                use #private::NeverFails as _;
                #private::job_ended(&__guard, #output.map(|__out| #private::Ended(__out).failed()));
            })
        })
    }

    /// Returns the version for which the body runs once, if there is one.
    pub(super) fn version(&self) -> Option<TokenStream> {
        let private = self.private();
        self.args.once_for.as_ref().map(|Arg { value, .. }| {
            let at = Span::mixed_site().located_at(value.span());
            quote_spanned!(at=> #private::version(&(#value)))
        })
    }

    /// Returns the end of the lock, as a `Result<(), LockError>`. `output` is an expression of type `Option<&Ret>`.
    pub(super) fn release(&self, output: &TokenStream, awaiting: bool) -> TokenStream {
        let (span, private) = (Span::mixed_site(), self.private());
        let end = match (self.args.once_for.is_some(), awaiting) {
            (false, true) => return quote_spanned!(span=> #private::release(__guard).await),
            (false, false) => return quote_spanned!(span=> #private::release_blocking(__guard)),
            (true, true) => quote_spanned!(span=> #private::end_once(__guard, &__version, __succeeded).await),
            (true, false) => quote_spanned!(span=> #private::end_once_blocking(__guard, &__version, __succeeded)),
        };
        quote_spanned!(span=> {
            #[allow(unused_imports)]
            use #private::NeverFails as _;
            let __succeeded = #output.is_some_and(|__out| !#private::Ended(__out).failed());
            #end
        })
    }

    fn on_ok(&self) -> bool {
        matches!(self.args.min_hold_on, Some(Arg { value: MinHoldOn::Ok, .. }))
            || matches!(self.args.retry_failed, Some(Arg { value: true, .. }))
    }
}

/// Returns the user's body in generated braces. The compiler would report the user's braces as "unused".
pub(super) fn body(function: &Function) -> TokenStream {
    let body = &function.body;
    let span = Span::mixed_site().located_at(function.body_span);
    quote_spanned!(span=> { #body })
}

/// Returns the user's body as a closure. The compiler names the variables of a closure or a block, for example of one
/// that moved, only if all of it is in the user's source.
pub(super) fn closure(function: &Function, arrow: &TokenStream) -> TokenStream {
    let body = &function.body;
    quote_spanned!(function.body_span=> move || #arrow { #body })
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
