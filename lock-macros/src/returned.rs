//! The information in a return type about its function, as far as the type is written out.

use proc_macro2::Ident;
use syn::visit::Visit;
use syn::visit_mut::{VisitMut, visit_type_mut};
use syn::{Error, GenericArgument, PathArguments, ReturnType, Token, Type, TypeParamBound};

/// Traits whose values run when polled, so after the function that made them has returned.
const STREAM_TRAITS: &[&str] = &["Stream", "TryStream", "FusedStream"];
/// Types that are boxes of such values.
const STREAM_TYPES: &[&str] = &["BoxStream", "LocalBoxStream"];

/// How a function returns its result.
pub(crate) enum Form {
    /// `async fn`.
    Async,
    /// A plain function that returns a future: its output, and whether the future is boxed.
    Future { output: Box<Type>, boxed: bool },
    /// A plain function.
    Sync,
}

/// Recognises `impl Future`, `Pin<Box<dyn Future>>` and the two aliases of the futures crate.
pub(crate) fn future_of(returned: &Type) -> Form {
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

/// Returns `E` of a `Result<T, E>` that is written out.
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

/// Reports every stream in a return type. A type whose name only ends in `Stream`, for example a socket, does not
/// count. An alias cannot be recognised.
pub(crate) fn streams(output: &ReturnType) -> Vec<Error> {
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

/// Returns whether a type contains `impl Trait`.
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
