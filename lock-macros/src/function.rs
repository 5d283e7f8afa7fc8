//! The annotated function: its signature is parsed, its body stays as it was typed.

use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::discouraged::Speculative;
use syn::parse::{ParseStream, Parser};
use syn::visit::Visit;
use syn::{AttrStyle, Attribute, Error, FnArg, PatIdent, Result, ReturnType, Signature, Token, Type, Visibility};

use crate::bounds;
use crate::returned::{Form, future_of, streams};
use crate::template::Names;
use crate::text::visible;

/// Attributes that commit when the function returns. If such an attribute is outside of the lock, the lock ends too
/// early.
const TRANSACTIONS: &[&str] = &["transactional", "transaction", "in_transaction", "with_transaction"];

/// An annotated function. The body is not parsed, so that an editor still helps with half-typed code.
pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) body: TokenStream,
    /// The place of the body.
    pub(crate) body_span: Span,
}

impl Function {
    /// Reads an item.
    pub(crate) fn parse(item: TokenStream) -> Result<Self> {
        let mut signature: Vec<TokenTree> = item.clone().into_iter().collect();
        // The body comes last, and is not read.
        signature.pop();
        bounds::check_signature(signature.into_iter().collect())?;
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
        Names { function: self.sig.ident.unraw().to_string(), bound, receiver, replaced: !replaced.is_empty() }
    }

    /// Collects the reasons why the function cannot have a lock, with any arguments.
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
            format!(
                "\"{}\" has no body to lock; put #[distributed_lock] on the method of each impl",
                visible(&sig.ident.unraw().to_string())
            ),
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

/// The names that patterns bind.
#[derive(Default)]
struct Binders(Vec<String>);

impl<'ast> Visit<'ast> for Binders {
    fn visit_pat_ident(&mut self, node: &'ast PatIdent) {
        self.0.push(node.ident.unraw().to_string());
        syn::visit::visit_pat_ident(self, node);
    }
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::Function;
    use crate::returned::Form;

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
    fn a_signature_that_would_crash_the_compiler_is_refused() {
        let nested = |depth: usize| (0..depth).fold(quote!(u8), |inner, _| quote!((#inner)));
        let parse = |depth: usize| {
            let (inner, deep) = (nested(depth), nested(depth - 1));
            (Function::parse(quote!(fn f() -> #inner {})), Function::parse(quote!(fn f(x: #deep) {})))
        };
        let (output, input) = parse(64);
        assert!(output.is_ok() && input.is_ok());
        let (output, input) = parse(65);
        for refused in [output, input] {
            let sentence = "types are nested more than 64 deep in the signature of this function; give them names";
            assert_eq!(refused.err().unwrap().to_string(), sentence);
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
