//! Plain functions that return a future. async-trait also turns methods into this form.

use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;
use syn::visit_mut::{VisitMut, visit_type_mut};
use syn::{GenericArgument, Lifetime, Type, TypeParamBound};

use super::asynchronous::steps;
use super::parts::{Parts, closure};
use crate::function::Function;

/// Returns the block of a function that returns a future. All of its statements run under the lock.
pub(super) fn block(parts: &Parts<'_>, function: &Function, boxed: bool) -> TokenStream {
    let (span, private) = (Span::mixed_site(), parts.private());
    let (fake_return, output) = (parts.fake_return(), &parts.returned);
    let arrow = boxed.then(|| {
        let returned = with_inferred_lifetimes(function.returned());
        quote_spanned!(span=> -> #returned)
    });
    let closure = closure(function, &arrow.unwrap_or_default());
    let inner =
        quote_spanned!(span=> #private::boxed(async move { #private::future_of::<#output, _>(#closure).await }));
    let steps = steps(parts, &inner);
    let whole = quote_spanned!(span=> async move { #fake_return #steps });
    if boxed { quote_spanned!(span=> { #private::boxed(#whole) }) } else { quote_spanned!(span=> { #whole }) }
}

/// Lets the compiler choose the lifetime of the inner future, which may borrow the guard.
fn with_inferred_lifetimes(mut returned: Type) -> Type {
    struct Infer;
    impl VisitMut for Infer {
        fn visit_type_mut(&mut self, node: &mut Type) {
            let inferred = Lifetime::new("'_", Span::mixed_site());
            match node {
                Type::TraitObject(object) => {
                    let bounds = std::mem::take(&mut object.bounds).into_iter();
                    object.bounds = bounds.filter(|bound| !matches!(bound, TypeParamBound::Lifetime(_))).collect();
                    object.bounds.push(TypeParamBound::Lifetime(inferred));
                }
                Type::Path(path) => {
                    // Only the path to the trait object. The output keeps its lifetimes.
                    if let Some(segment) = path.path.segments.last_mut()
                        && let syn::PathArguments::AngleBracketed(arguments) = &mut segment.arguments
                    {
                        for argument in &mut arguments.args {
                            if let GenericArgument::Lifetime(lifetime) = argument {
                                *lifetime = inferred.clone();
                            }
                        }
                    }
                    if path.path.segments.last().is_some_and(|segment| segment.ident == "Pin" || segment.ident == "Box")
                    {
                        visit_type_mut(self, node);
                    }
                }
                Type::Paren(_) | Type::Group(_) => visit_type_mut(self, node),
                _ => {}
            }
        }
    }
    Infer.visit_type_mut(&mut returned);
    returned
}
