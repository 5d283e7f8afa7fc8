//! The annotated function: its signature is read, its body stays as it was typed.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use syn::parse::discouraged::Speculative;
use syn::parse::{ParseStream, Parser};
use syn::visit::Visit;
use syn::visit_mut::{VisitMut, visit_type_mut};
use syn::{
    AttrStyle, Attribute, Error, FnArg, GenericArgument, PatIdent, PathArguments, Result, ReturnType, Signature, Token,
    Type, TypeParamBound, Visibility,
};

use crate::template::Names;

/// Attributes that commit when the function returns: above them, a lock ends too early.
const TRANSACTIONS: &[&str] = &["transactional", "transaction", "in_transaction", "with_transaction"];

/// Traits whose values run when polled, and so after the function that made them has returned.
const STREAM_TRAITS: &[&str] = &["Stream", "TryStream", "FusedStream"];
/// Types that are boxes of such values.
const STREAM_TYPES: &[&str] = &["BoxStream", "LocalBoxStream"];

/// An annotated function. The body is not parsed, so that half-typed code still gets its help.
pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) body: TokenStream,
    /// The place of the body.
    pub(crate) body_span: Span,
}

/// How a function returns its result.
pub(crate) enum Form {
    /// `async fn`.
    Async,
    /// A plain function that returns a future: its output, and whether the future is boxed.
    Future { output: Box<Type>, boxed: bool },
    /// A plain function.
    Sync,
}

impl Function {
    /// Reads an item.
    pub(crate) fn parse(item: TokenStream) -> Result<Self> {
        parse.parse2(item)
    }

    /// Returns how the function returns its result.
    pub(crate) fn form(&self) -> Form {
        if self.sig.asyncness.is_some() {
            return Form::Async;
        }
        match &self.sig.output {
            ReturnType::Default => Form::Sync,
            ReturnType::Type(_, returned) => future_of(returned),
        }
    }

    /// Returns the type written after the arrow, or `()`.
    pub(crate) fn returned(&self) -> Type {
        match &self.sig.output {
            ReturnType::Default => unit(self.sig.ident.span()),
            ReturnType::Type(_, returned) => (**returned).clone(),
        }
    }

    /// Returns the names that a key may use.
    pub(crate) fn names(&self) -> Names {
        let mut binders = Binders::default();
        let mut receiver = false;
        for input in &self.sig.inputs {
            match input {
                FnArg::Receiver(_) => receiver = true,
                FnArg::Typed(typed) => binders.visit_pat(&typed.pat),
            }
        }
        let (replaced, bound): (Vec<String>, Vec<String>) = binders.0.into_iter().partition(|name| {
            name.strip_prefix("__arg").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
        });
        Names { function: self.sig.ident.to_string(), bound, receiver, replaced: !replaced.is_empty() }
    }

    /// Collects what makes the function unfit for a lock, whatever the arguments are.
    pub(crate) fn check(&self) -> Vec<Error> {
        let mut errors = Vec::new();
        if let Some(keyword) = &self.sig.constness {
            errors.push(Error::new(
                keyword.span,
                "a const fn cannot take a lock: it may run in the compiler; remove const",
            ));
        }
        for attr in &self.attrs {
            let name = attr.path().segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
            if TRANSACTIONS.contains(&name.as_str()) {
                errors.push(Error::new_spanned(
                    attr,
                    format!(
                        "#[{name}] below #[distributed_lock] commits after the lock is released; write #[distributed_lock] \
                         below it, nearest to fn"
                    ),
                ));
            }
        }
        errors.extend(streams(&self.sig.output));
        errors
    }
}

fn parse(input: ParseStream<'_>) -> Result<Function> {
    let attrs = input.call(Attribute::parse_outer)?;
    let vis = input.parse::<Visibility>()?;
    let ahead = input.fork();
    let Ok(sig) = ahead.parse::<Signature>() else {
        return Err(not_a_function(input));
    };
    input.advance_to(&ahead);
    match input.parse::<TokenTree>().map(bare) {
        Ok(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
            let (inner, body) = inner_attributes.parse2(group.stream())?;
            let attrs = attrs.into_iter().chain(inner).collect();
            Ok(Function { attrs, vis, sig, body, body_span: group.span() })
        }
        _ => Err(Error::new(
            sig.ident.span(),
            format!("\"{}\" has no body to lock; put #[distributed_lock] on the method of each impl", sig.ident),
        )),
    }
}

/// Removes the invisible group around the variable of a `macro_rules` macro.
fn bare(tree: TokenTree) -> TokenTree {
    match &tree {
        TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
            let mut inside = group.stream().into_iter();
            match (inside.next(), inside.next()) {
                (Some(only), None) => bare(only),
                _ => tree,
            }
        }
        _ => tree,
    }
}

/// Takes `#![…]` off the start of a body, as attributes of the function.
fn inner_attributes(input: ParseStream<'_>) -> Result<(Vec<Attribute>, TokenStream)> {
    let mut attrs = input.call(Attribute::parse_inner)?;
    for attr in &mut attrs {
        attr.style = AttrStyle::Outer;
    }
    Ok((attrs, input.parse()?))
}

fn not_a_function(input: ParseStream<'_>) -> Error {
    let inside = input.peek(Token![impl]) || input.peek(Token![trait]) || input.peek(Token![mod]);
    let advice = if inside { "apply it to each method or function" } else { "a lock protects the run of a body" };
    input.error(format!("#[distributed_lock] needs a function: {advice}"))
}

/// Returns the type `()`, at the place that an error about it should show.
fn unit(span: Span) -> Type {
    Type::Tuple(syn::TypeTuple {
        attrs: Vec::new(),
        paren_token: syn::token::Paren(span),
        elems: syn::punctuated::Punctuated::new(),
    })
}

/// Recognises `impl Future`, `Pin<Box<dyn Future>>` and the two aliases of the futures crate.
fn future_of(returned: &Type) -> Form {
    let found = match returned {
        Type::ImplTrait(opaque) => future_output(opaque.bounds.iter()).map(|output| (output, false)),
        Type::Paren(inner) => return future_of(&inner.elem),
        Type::Group(inner) => return future_of(&inner.elem),
        Type::Path(_) => boxed_output(returned).map(|output| (output, true)),
        _ => None,
    };
    found.map_or(Form::Sync, |(output, boxed)| Form::Future { output: Box::new(output), boxed })
}

fn boxed_output(returned: &Type) -> Option<Type> {
    let (name, last) = last_argument(returned)?;
    if name == "BoxFuture" || name == "LocalBoxFuture" {
        return Some(last.clone());
    }
    if name != "Pin" {
        return None;
    }
    match last_argument(last)? {
        (name, Type::TraitObject(object)) if name == "Box" => future_output(object.bounds.iter()),
        _ => None,
    }
}

/// Returns `E` of a `Result<T, E>` that is spelled out.
pub(crate) fn error_of_result(returned: &Type) -> Option<&Type> {
    let Type::Path(path) = returned else { return None };
    let segment = path.path.segments.last().filter(|segment| segment.ident == "Result")?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    match arguments.args.iter().nth(1)? {
        GenericArgument::Type(error) => Some(error),
        _ => None,
    }
}

/// Returns the last name of a path and its last type argument.
fn last_argument(path: &Type) -> Option<(&Ident, &Type)> {
    let Type::Path(path) = path else { return None };
    let segment = path.path.segments.last()?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    match arguments.args.last()? {
        GenericArgument::Type(last) => Some((&segment.ident, last)),
        _ => None,
    }
}

/// Finds `T` in `Future<Output = T>` among bounds.
fn future_output<'a>(bounds: impl Iterator<Item = &'a TypeParamBound>) -> Option<Type> {
    bounds.into_iter().find_map(|bound| {
        let TypeParamBound::Trait(bound) = bound else { return None };
        let segment = bound.path.segments.last().filter(|segment| segment.ident == "Future")?;
        let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
        arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::AssocType(assoc) if assoc.ident == "Output" => Some(assoc.ty.clone()),
            _ => None,
        })
    })
}

/// Reports every stream in a return type. A type whose name only ends in `Stream`, such as a socket,
/// is not one, and an alias cannot be recognised.
fn streams(output: &ReturnType) -> Vec<Error> {
    struct Find(Vec<Error>);
    impl Find {
        fn look(&mut self, path: &syn::Path, names: &[&str]) {
            if path.segments.last().is_some_and(|segment| names.iter().any(|name| segment.ident == name)) {
                self.0.push(Error::new_spanned(
                    path,
                    "a stream runs after this function has returned and released the lock; collect its items here, or \
                     let it own a guard, from LockManager::lock(…).await",
                ));
            }
        }
    }
    impl<'ast> Visit<'ast> for Find {
        fn visit_trait_bound(&mut self, node: &'ast syn::TraitBound) {
            self.look(&node.path, STREAM_TRAITS);
            syn::visit::visit_trait_bound(self, node);
        }

        fn visit_type_path(&mut self, node: &'ast syn::TypePath) {
            self.look(&node.path, STREAM_TYPES);
            syn::visit::visit_type_path(self, node);
        }
    }
    let mut find = Find(Vec::new());
    find.visit_return_type(output);
    find.0
}

/// Replaces every `impl Trait` by `_`, because a body cannot name it.
pub(crate) fn nameable(mut returned: Type) -> Type {
    struct Erase;
    impl VisitMut for Erase {
        fn visit_type_mut(&mut self, node: &mut Type) {
            if let Type::ImplTrait(opaque) = node {
                *node = Type::Infer(syn::TypeInfer {
                    attrs: Vec::new(),
                    underscore_token: Token![_](opaque.impl_token.span),
                });
            } else {
                visit_type_mut(self, node);
            }
        }
    }
    Erase.visit_type_mut(&mut returned);
    returned
}

/// Says whether a type contains `impl Trait`.
pub(crate) fn has_opaque(returned: &Type) -> bool {
    struct Find(bool);
    impl<'ast> Visit<'ast> for Find {
        fn visit_type_impl_trait(&mut self, _: &'ast syn::TypeImplTrait) {
            self.0 = true;
        }
    }
    let mut find = Find(false);
    find.visit_type(returned);
    find.0
}

/// The names that patterns bind.
#[derive(Default)]
struct Binders(Vec<String>);

impl<'ast> Visit<'ast> for Binders {
    fn visit_pat_ident(&mut self, node: &'ast PatIdent) {
        self.0.push(node.ident.to_string());
        syn::visit::visit_pat_ident(self, node);
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::{Form, Function};

    fn form(item: proc_macro2::TokenStream) -> String {
        match Function::parse(item).unwrap().form() {
            Form::Async => "async".to_owned(),
            Form::Sync => "sync".to_owned(),
            Form::Future { output, boxed } => format!("{} of {}", if boxed { "box" } else { "impl" }, quote!(#output)),
        }
    }

    #[test]
    fn knows_futures_by_their_spelling() {
        for (item, expected) in [
            (
                quote!(
                    async fn f() {}
                ),
                "async",
            ),
            (
                quote!(
                    fn f() {}
                ),
                "sync",
            ),
            (
                quote!(
                    fn f() -> Result<(), E> {}
                ),
                "sync",
            ),
            (
                quote!(
                    fn f() -> impl Future<Output = u8> + Send {}
                ),
                "impl of u8",
            ),
            (
                quote!(
                    fn f() -> impl Send + ::core::future::Future<Output = u8> {}
                ),
                "impl of u8",
            ),
            (
                quote!(
                    fn f() -> impl Iterator<Item = u8> {}
                ),
                "sync",
            ),
            (
                quote!(
                    fn f() -> Pin<Box<dyn Future<Output = u8> + Send + '_>> {}
                ),
                "box of u8",
            ),
            (
                quote!(
                    fn f() -> std::pin::Pin<std::boxed::Box<dyn std::future::Future<Output = u8>>> {}
                ),
                "box of u8",
            ),
            (
                quote!(
                    fn f() -> BoxFuture<'a, u8> {}
                ),
                "box of u8",
            ),
            (
                quote!(
                    fn f() -> Pin<Box<dyn Stream<Item = u8>>> {}
                ),
                "sync",
            ),
        ] {
            assert_eq!(form(item.clone()), expected, "{item}");
        }
    }

    #[test]
    fn the_body_may_be_half_typed() {
        let function = Function::parse(quote!(async fn f() { #![allow(unused)] let x = y. })).unwrap();
        assert_eq!((function.attrs.len(), function.body.to_string()), (1, "let x = y .".to_owned()));
    }

    #[test]
    fn finds_every_name() {
        let item = quote!(
            fn f(&self, a: u8, (b, C { d, e: mut f, .. }): X, [g, ..]: Y, _: Z, __arg7: W) {}
        );
        let names = Function::parse(item).unwrap().names();
        assert_eq!(names.bound, ["a", "b", "d", "f", "g"]);
        assert!(names.receiver && names.replaced);
    }
}
