//! From arguments and a function to the function under its lock.

mod asynchronous;
mod docs;
mod enter;
mod future;
mod parts;
mod refusal;
mod synchronous;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::{Error, Type};

use crate::args::{Action, Arg, Args, FunctionForm, KeysArg};
use crate::function::Function;
use crate::returned::{Form, error_of_result};
use parts::Parts;

/// Expands the attribute. If there is a mistake, it returns the original item next to the errors, so that code that
/// uses the item still finds it.
pub(crate) fn expand(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let original = item.clone();
    let (args, mut errors) = Args::parse(arguments);
    let function = match Function::parse(item) {
        Ok(function) => Some(function),
        Err(error) => {
            errors.push(error);
            None
        }
    };
    if let Some(function) = &function {
        errors.extend(check(&args, function));
        if errors.is_empty() {
            return build(&args, function);
        }
    }
    let errors = errors.iter().map(Error::to_compile_error);
    quote!(#(#errors)* #original)
}

/// Collects the mistakes of these arguments on this function.
fn check(args: &Args, function: &Function) -> Vec<Error> {
    let form = function.form();
    let synchronous = matches!(form, Form::Sync);
    let mut errors = function.check();
    errors.extend(args.check(if synchronous { FunctionForm::Synchronous } else { FunctionForm::Asynchronous }));
    let names = function.names();
    let listed = args.keys.iter().flat_map(|keys| match &keys.value {
        KeysArg::Templates(templates) => templates.as_slice(),
        KeysArg::Iterator(_) => &[],
    });
    for template in args.key.iter().map(|key| &key.value).chain(listed) {
        errors.extend(template.check(&names));
    }
    if let (Some(_), Some(key)) = (&args.stripes, &args.key) {
        errors.extend(key.value.name_of_stripes().err());
    }
    errors.extend(args.unquoted(&names));
    errors.extend(args.guard.iter().filter_map(|guard| names.hidden_by(&guard.value)));
    errors.extend(text_as_error(args, &output(function, &form)));
    if !args.key_was_tried {
        errors.push(Error::new(
            Span::call_site(),
            r#"which lock? Write key = "lock:user:<user_id>", with a parameter between the angle brackets"#,
        ));
    }
    if let Type::Never(never) = output(function, &form) {
        // A synchronous body that never returns has no end at which a loss could be reported.
        let lost = if synchronous { &args.on_error } else { &args.on_lost };
        let diverges = [&args.on_busy, &args.on_error, lost].into_iter().all(|option| {
            option.as_ref().is_some_and(|option| !option.value.returns_error() && !matches!(option.value, Action::Skip))
        });
        if !diverges {
            errors.push(Error::new(
                never.bang_token.span,
                "`!` cannot carry a lock failure: set on_busy, on_error and on_lost to closures that do not return",
            ));
        }
    }
    errors
}

/// Reports an error type that is a text: the user cannot implement `From` for it.
fn text_as_error(args: &Args, returned: &Type) -> Option<Error> {
    let error = error_of_result(returned)?;
    let text = error.to_token_stream().to_string().replace(' ', "");
    let returns_error =
        |option: &Option<Arg<Action>>| option.as_ref().is_none_or(|option| option.value.returns_error());
    if args.map_err.is_some() || ![&args.on_busy, &args.on_error, &args.on_lost].into_iter().any(returns_error) {
        return None;
    }
    let map = match text.as_str() {
        "String" | "std::string::String" => "|error| error.to_string()",
        "&'staticstr" => "|_| \"could not take the lock\"",
        "()" => "|_| ()",
        _ => return None,
    };
    Some(Error::new_spanned(
        error,
        format!(
            "`{}` cannot be built from a `LockError`; add map_err = {map} to the attribute",
            text.replace("static", "static ")
        ),
    ))
}

/// Returns the type of the body's result: the type after the arrow, or the output of the future there.
fn output(function: &Function, form: &Form) -> Type {
    match form {
        Form::Future { output, .. } => (**output).clone(),
        Form::Async | Form::Sync => function.returned(),
    }
}

fn build(args: &Args, function: &Function) -> TokenStream {
    let form = function.form();
    let parts = Parts::new(args, function, output(function, &form));
    let block = match &form {
        Form::Async => asynchronous::block(&parts, function),
        Form::Future { boxed, .. } => future::block(&parts, function, *boxed),
        Form::Sync => synchronous::block(&parts, function),
    };
    let Function { attrs, vis, sig, .. } = function;
    let docs = docs::attributes(&parts);
    quote!(#(#attrs)* #docs #vis #sig #block)
}

#[cfg(test)]
mod tests;
