//! The arguments of the attribute: each at most once, in any order, all mistakes reported together.

mod rules;

use proc_macro2::Span;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprArray, ExprLit, ExprPath, Ident, Lit, LitBool, LitStr, Path, Result, Token};

use crate::duration::DurationArg;
use crate::suggest;
use crate::template::Template;

pub(crate) use rules::{FunctionForm, show};

/// Every option name, in the order in which people should read them.
const KNOWN: &[&str] = &[
    "key",
    "keys",
    "ttl",
    "wait",
    "on_busy",
    "on_error",
    "on_lost",
    "map_err",
    "renew",
    "max_hold",
    "min_hold",
    "reentrant",
    "guard",
    "client",
    "when",
    "label",
    "stuck_after",
    "docs",
    "crate",
];

/// One option as it was written: the place of its name, and its value.
#[derive(Clone)]
pub(crate) struct Arg<T> {
    pub(crate) name: Span,
    /// How many arguments stand before it.
    pub(crate) order: usize,
    pub(crate) value: T,
}

/// All options. What is `None` was not written.
#[derive(Default)]
pub(crate) struct Args {
    /// How many arguments were read.
    read: usize,
    /// Whether a key was written, readable or not.
    pub(crate) key_was_tried: bool,
    pub(crate) key: Option<Arg<Template>>,
    pub(crate) keys: Option<Arg<Vec<Template>>>,
    pub(crate) ttl: Option<Arg<DurationArg>>,
    pub(crate) wait: Option<Arg<WaitArg>>,
    pub(crate) on_busy: Option<Arg<Action>>,
    pub(crate) on_error: Option<Arg<Action>>,
    pub(crate) on_lost: Option<Arg<Action>>,
    pub(crate) map_err: Option<Arg<Expr>>,
    pub(crate) renew: Option<Arg<RenewArg>>,
    pub(crate) max_hold: Option<Arg<DurationArg>>,
    pub(crate) min_hold: Option<Arg<DurationArg>>,
    pub(crate) reentrant: Option<Arg<bool>>,
    pub(crate) guard: Option<Arg<Ident>>,
    pub(crate) client: Option<Arg<Expr>>,
    pub(crate) when: Option<Arg<Expr>>,
    pub(crate) label: Option<Arg<LitStr>>,
    pub(crate) stuck_after: Option<Arg<DurationArg>>,
    pub(crate) docs: Option<Arg<bool>>,
    pub(crate) krate: Option<Arg<Path>>,
}

/// The value of `wait`.
pub(crate) enum WaitArg {
    None,
    Forever,
    AtMost(DurationArg),
}

/// The value of `renew`.
pub(crate) enum RenewArg {
    Auto,
    Off,
    Every(DurationArg),
}

/// The value of `on_busy`, `on_error` and `on_lost`.
#[derive(Clone)]
pub(crate) enum Action {
    /// Return the error.
    Error,
    /// Stop the body, then return the error.
    Cancel,
    /// Return the empty value of the return type.
    Skip,
    /// Run the body without a lock.
    RunUnlocked,
    /// Finish as if nothing happened.
    Ignore,
    /// Return what the user's function makes of the error.
    Handler(Box<Expr>),
}

impl Args {
    /// Reads the arguments. What could be read is returned next to the mistakes, so that the
    /// function can be checked against it too.
    pub(crate) fn parse(tokens: proc_macro2::TokenStream) -> (Self, Vec<Error>) {
        let mut args = Self::default();
        let mut errors = Vec::new();
        let parser = |input: ParseStream<'_>| {
            while !input.is_empty() {
                if let Err(error) = args.parse_one(input) {
                    errors.push(error);
                    skip_argument(input);
                }
                if !input.is_empty()
                    && let Err(error) = input.parse::<Token![,]>()
                {
                    errors.push(error);
                    skip_argument(input);
                }
            }
            Ok(())
        };
        if let Err(error) = parser.parse2(tokens) {
            errors.push(error);
        }
        (args, errors)
    }

    /// The path of the library.
    pub(crate) fn krate(&self) -> Path {
        self.krate.as_ref().map_or_else(crate::key::default_crate, |krate| krate.value.clone())
    }

    fn parse_one(&mut self, input: ParseStream<'_>) -> Result<()> {
        if let Ok(literal) = input.fork().parse::<LitStr>() {
            let text = literal.value();
            self.key_was_tried = true;
            return Err(Error::new(literal.span(), format!("an argument has a name: write key = {text:?}")));
        }
        let name = input.call(Ident::parse_any)?;
        let value = if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            // A fork, so that a value that fails half-way is skipped from its start.
            let ahead = input.fork();
            let value = ahead.parse::<Expr>()?;
            syn::parse::discouraged::Speculative::advance_to(input, &ahead);
            Some(bare(value))
        } else {
            None
        };
        let text = name.to_string();
        let span = name.span();
        let name = Name { ident: name, order: self.read };
        self.read += 1;
        self.key_was_tried |= text == "key" || text == "keys";
        match text.as_str() {
            "key" => set(&mut self.key, name, needed(value, span, &text).and_then(string).and_then(Template::parse)),
            "keys" => set(&mut self.keys, name, needed(value, span, &text).and_then(templates)),
            "ttl" => set(&mut self.ttl, name, needed(value, span, &text).and_then(DurationArg::from_expr)),
            "wait" => set(&mut self.wait, name, needed(value, span, &text).and_then(wait)),
            "on_busy" => {
                set(&mut self.on_busy, name, needed(value, span, &text).and_then(|value| action(value, &text, ON_BUSY)))
            }
            "on_error" => set(
                &mut self.on_error,
                name,
                needed(value, span, &text).and_then(|value| action(value, &text, ON_ERROR)),
            ),
            "on_lost" => {
                set(&mut self.on_lost, name, needed(value, span, &text).and_then(|value| action(value, &text, ON_LOST)))
            }
            "map_err" => set(&mut self.map_err, name, needed(value, span, &text).and_then(callable)),
            "renew" => set(&mut self.renew, name, renew(value)),
            "max_hold" => set(&mut self.max_hold, name, needed(value, span, &text).and_then(DurationArg::from_expr)),
            "min_hold" => set(&mut self.min_hold, name, needed(value, span, &text).and_then(DurationArg::from_expr)),
            "reentrant" => set(&mut self.reentrant, name, flag(value)),
            "guard" => set(&mut self.guard, name, needed(value, span, &text).and_then(|value| identifier(&value))),
            "client" => set(&mut self.client, name, needed(value, span, &text)),
            "when" => set(&mut self.when, name, needed(value, span, &text)),
            "label" => set(&mut self.label, name, needed(value, span, &text).and_then(label)),
            "stuck_after" => {
                set(&mut self.stuck_after, name, needed(value, span, &text).and_then(DurationArg::from_expr))
            }
            "docs" => set(&mut self.docs, name, flag(value)),
            "crate" => set(&mut self.krate, name, needed(value, span, &text).and_then(path)),
            _ => Err(unknown(&name.ident)),
        }
    }
}

const ON_BUSY: &[(&str, Action)] = &[("error", Action::Error), ("skip", Action::Skip)];
const ON_ERROR: &[(&str, Action)] =
    &[("error", Action::Error), ("skip", Action::Skip), ("run_unlocked", Action::RunUnlocked)];
const ON_LOST: &[(&str, Action)] =
    &[("cancel", Action::Cancel), ("error", Action::Error), ("skip", Action::Skip), ("ignore", Action::Ignore)];

/// The name of an argument, and how many arguments stand before it.
struct Name {
    ident: Ident,
    order: usize,
}

/// Fills one option. It is the only way to, so no option can be written twice.
fn set<T>(slot: &mut Option<Arg<T>>, name: Name, value: Result<T>) -> Result<()> {
    let Name { ident, order } = name;
    if slot.is_some() {
        return Err(Error::new(ident.span(), format!("\"{ident}\" is given twice; keep one")));
    }
    *slot = Some(Arg { name: ident.span(), order, value: value? });
    Ok(())
}

fn skip_argument(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) {
        // Any token tree can be skipped, so this never fails.
        let _ = input.parse::<proc_macro2::TokenTree>();
    }
}

fn unknown(name: &Ident) -> Error {
    let typed = name.unraw().to_string();
    let near = suggest::option(&typed, KNOWN).map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
    let period = if near.is_empty() { "." } else { "" };
    Error::new(name.span(), format!("unknown argument \"{typed}\"{near}{period} Known: {}", KNOWN.join(", ")))
}

fn needed(value: Option<Expr>, name: Span, text: &str) -> Result<Expr> {
    value.ok_or_else(|| Error::new(name, format!("\"{text}\" needs a value: write {text} = …")))
}

/// Takes off what is invisible around the variable of a `macro_rules` macro.
fn bare(expr: Expr) -> Expr {
    match expr {
        Expr::Group(group) => bare(*group.expr),
        other => other,
    }
}

pub(crate) fn string(expr: Expr) -> Result<LitStr> {
    match bare(expr) {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text),
        other => Err(Error::new(
            other.span(),
            r#"expected a string literal, such as "lock:user:<user_id>"; values go between the angle brackets"#,
        )),
    }
}

fn label(expr: Expr) -> Result<LitStr> {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if !text.value().trim().is_empty() => Ok(text),
        other => Err(Error::new(
            other.span(),
            "expected a string literal that is not empty: a label is the same for every key, so that metrics stay few",
        )),
    }
}

fn templates(expr: Expr) -> Result<Vec<Template>> {
    let Expr::Array(ExprArray { elems, bracket_token, .. }) = expr else {
        return Err(Error::new(expr.span(), r#"expected a list of keys, such as ["account:<from>", "account:<to>"]"#));
    };
    if elems.is_empty() {
        return Err(Error::new(bracket_token.span.open(), "the list of keys is empty; name what is locked"));
    }
    elems.into_iter().map(|element| string(element).and_then(Template::parse)).collect()
}

fn wait(expr: Expr) -> Result<WaitArg> {
    if let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &expr {
        match text.value().as_str() {
            "none" => return Ok(WaitArg::None),
            "forever" => return Ok(WaitArg::Forever),
            other if other.chars().all(char::is_alphabetic) && !other.is_empty() => {
                let near = suggest::nearest(other, &["none", "forever"]);
                let near = near.map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
                let sentence = format!("unknown wait {other:?}{near} Write a duration, \"none\" or \"forever\"");
                return Err(Error::new(text.span(), sentence));
            }
            _ => {}
        }
    }
    DurationArg::from_expr(expr).map(WaitArg::AtMost)
}

fn renew(expr: Option<Expr>) -> Result<RenewArg> {
    match expr {
        None => Ok(RenewArg::Auto),
        Some(Expr::Lit(ExprLit { lit: Lit::Bool(LitBool { value, .. }), .. })) => {
            Ok(if value { RenewArg::Auto } else { RenewArg::Off })
        }
        Some(expr) => DurationArg::from_expr(expr).map(RenewArg::Every),
    }
}

fn flag(expr: Option<Expr>) -> Result<bool> {
    match expr {
        None => Ok(true),
        Some(Expr::Lit(ExprLit { lit: Lit::Bool(value), .. })) => Ok(value.value),
        Some(other) => Err(Error::new(other.span(), "expected true or false")),
    }
}

fn action(expr: Expr, option: &str, known: &[(&str, Action)]) -> Result<Action> {
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &expr else {
        return callable(expr).map(|handler| Action::Handler(Box::new(handler)));
    };
    let typed = text.value();
    if let Some((_, action)) = known.iter().find(|(name, _)| *name == typed) {
        return Ok(action.clone());
    }
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let near = suggest::nearest(&typed, &names).map_or_else(String::new, |near| format!("; did you mean \"{near}\"?"));
    let period = if near.is_empty() { "." } else { "" };
    let names = names.join("\", \"");
    let sentence = format!("unknown {option} {typed:?}{near}{period} Known: \"{names}\", or a closure |error| value");
    Err(Error::new(text.span(), sentence))
}

fn callable(expr: Expr) -> Result<Expr> {
    match expr {
        Expr::Closure(_) | Expr::Path(_) => Ok(expr),
        other => Err(Error::new(other.span(), "expected a closure |error| value, or the path of a function")),
    }
}

fn identifier(expr: &Expr) -> Result<Ident> {
    match expr {
        Expr::Path(ExprPath { attrs, qself: None, path }) if attrs.is_empty() => path.get_ident().cloned(),
        _ => None,
    }
    .filter(|name| name != "self" && name != "Self" && name != "crate" && name != "super")
    .ok_or_else(|| Error::new(expr.span(), "expected a name for the guard, such as guard = lock"))
}

fn path(expr: Expr) -> Result<Path> {
    match expr {
        Expr::Path(ExprPath { qself: None, path, .. }) => Ok(path),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => text.parse_with(Path::parse_mod_style),
        other => Err(Error::new(
            other.span(),
            format!("expected a path, such as crate = ::lock_core, and found `{}`", other.to_token_stream()),
        )),
    }
}

#[cfg(test)]
mod tests;
