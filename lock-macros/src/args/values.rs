//! Readers: from a written expression to the value of an option.

use proc_macro2::Span;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprArray, ExprLit, ExprPath, Ident, Lit, LitBool, LitStr, Path, Result};

use crate::duration::DurationArg;
use crate::suggest;
use crate::template::Template;
use crate::text::visible;

/// The text written for one option.
pub(super) struct Value {
    pub(super) name: String,
    pub(super) span: Span,
    /// The expression after `=`.
    pub(super) expr: Option<Expr>,
}

/// The value of `keys`.
pub(crate) enum KeysArg {
    Templates(Vec<Template>),
    /// Any expression that the caller's program can iterate over.
    Iterator(Box<Expr>),
}

/// The value of `wait`.
pub(crate) enum WaitArg {
    None,
    Forever,
    /// A duration that is known at compile time.
    Known(DurationArg),
    /// A `Duration` or a `Wait`.
    Expr(Box<Expr>),
}

/// The value of `renew`.
pub(crate) enum RenewArg {
    Auto,
    Off,
    Every(DurationArg),
}

impl RenewArg {
    pub(super) fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }
}

/// The value of `mode`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModeArg {
    Read,
    Write,
}

/// The value of `durability`.
pub(crate) enum DurabilityArg {
    Master,
    Acks(u8),
    AllReplicas,
    Fsync {
        replicas: u8,
    },
    /// A `Durability`.
    Expr(Box<Expr>),
}

/// The value of `min_hold_on`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MinHoldOn {
    End,
    Ok,
}

/// The value of `on_busy`, `on_error`, `on_lost` and `on_refused`.
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
    /// Return the body's result and ignore the loss.
    Ignore,
    /// Return the value that the user's closure makes from the error.
    Handler(Box<Expr>),
    /// Return this value.
    Value(Box<Expr>),
    /// A path: a function of the error, or a value. Its type decides.
    Path(Box<Expr>),
}

impl Action {
    pub(super) fn runs_unlocked(&self) -> bool {
        matches!(self, Self::RunUnlocked)
    }

    pub(super) fn ignores(&self) -> bool {
        matches!(self, Self::Ignore)
    }

    /// Returns whether the error itself can be returned.
    pub(crate) fn returns_error(&self) -> bool {
        matches!(self, Self::Error | Self::Cancel | Self::RunUnlocked)
    }
}

/// The keywords of `wait`.
pub(super) const WAIT: &[&str] = &["none", "forever"];
/// The keywords of `durability` that could be a name.
pub(super) const DURABILITY: &[&str] = &["master"];
/// The keywords of the options that are an [`Action`].
pub(super) const ACTIONS: &[&str] = &["error", "skip", "cancel", "ignore", "run_unlocked"];

/// The keywords of an option.
pub(super) type Words<T> = &'static [(&'static str, T)];

pub(super) const ON_BUSY: Words<Action> = &[("error", Action::Error), ("skip", Action::Skip)];
pub(super) const ON_ERROR: Words<Action> =
    &[("error", Action::Error), ("skip", Action::Skip), ("run_unlocked", Action::RunUnlocked)];
pub(super) const ON_LOST: Words<Action> =
    &[("cancel", Action::Cancel), ("error", Action::Error), ("skip", Action::Skip), ("ignore", Action::Ignore)];
pub(super) const ON_REFUSED: Words<Action> = &[("skip", Action::Skip)];
const MODE: Words<ModeArg> = &[("read", ModeArg::Read), ("write", ModeArg::Write)];
/// Words that people know from other libraries.
const MODE_ELSEWHERE: [(&str, &str); 3] = [("shared", "read"), ("exclusive", "write"), ("reader", "read")];
pub(super) const MIN_HOLD_ON: Words<MinHoldOn> = &[("end", MinHoldOn::End), ("ok", MinHoldOn::Ok)];
pub(super) const RUN_ONCE_EVEN_IF: Words<()> = &[("crashed", ())];

/// The alternatives to the keywords of an action.
const OR_AN_ANSWER: &str = ", a value, or a closure |error| value";

impl Value {
    /// Returns the expression after `=`, which must be there.
    fn needed(self) -> Result<Expr> {
        let Self { name, span, expr } = self;
        expr.ok_or_else(|| Error::new(span, format!("\"{name}\" needs a value: write {name} = …")))
    }
}

pub(super) fn expression(value: Value) -> Result<Expr> {
    value.needed()
}

pub(super) fn duration(value: Value) -> Result<DurationArg> {
    value.needed().and_then(DurationArg::from_expr)
}

pub(super) fn key(value: Value) -> Result<Template> {
    match value.needed()? {
        Expr::Array(list) => Err(Error::new(list.span(), "key names one lock; write keys = […] for several")),
        other => string(other).and_then(Template::parse),
    }
}

pub(super) fn keys(value: Value) -> Result<KeysArg> {
    let is_string = |element: &Expr| matches!(element, Expr::Lit(ExprLit { lit: Lit::Str(_), .. }));
    match value.needed()? {
        Expr::Array(ExprArray { elems, bracket_token, .. }) if elems.is_empty() => {
            Err(Error::new(bracket_token.span.open(), "the list of keys is empty; name what is locked"))
        }
        Expr::Array(ExprArray { elems, .. }) if elems.iter().any(is_string) => elems
            .into_iter()
            .map(|element| string(element).and_then(Template::parse))
            .collect::<Result<_>>()
            .map(KeysArg::Templates),
        Expr::Lit(literal) => Err(Error::new(
            literal.span(),
            r#"expected a list of keys, such as ["account:<from>", "account:<to>"], or an iterator of keys"#,
        )),
        other => Ok(KeysArg::Iterator(Box::new(other))),
    }
}

pub(super) fn wait(value: Value) -> Result<WaitArg> {
    let expr = value.needed()?;
    if let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &expr {
        match text.value().as_str() {
            "none" => return Ok(WaitArg::None),
            "forever" => return Ok(WaitArg::Forever),
            other if other.chars().all(char::is_alphabetic) && !other.is_empty() => {
                let near = did_you_mean(suggest::nearest(other, WAIT));
                let sentence =
                    format!("unknown wait \"{}\"{near} Write a duration, \"none\" or \"forever\"", visible(other));
                return Err(Error::new(text.span(), sentence));
            }
            _ => {}
        }
    }
    Ok(match DurationArg::from_expr(expr)? {
        DurationArg::Expr(expr) => WaitArg::Expr(expr),
        known @ DurationArg::Known(..) => WaitArg::Known(known),
    })
}

pub(super) fn renew(value: Value) -> Result<RenewArg> {
    match value.expr {
        None => Ok(RenewArg::Auto),
        Some(Expr::Lit(ExprLit { lit: Lit::Bool(LitBool { value, .. }), .. })) => {
            Ok(if value { RenewArg::Auto } else { RenewArg::Off })
        }
        Some(expr) => DurationArg::from_expr(expr).map(RenewArg::Every),
    }
}

pub(super) fn flag(value: Value) -> Result<bool> {
    match value.expr {
        None => Ok(true),
        Some(Expr::Lit(ExprLit { lit: Lit::Bool(value), .. })) => Ok(value.value),
        Some(other) => Err(Error::new(other.span(), "expected true or false")),
    }
}

/// Reads what a call does instead: a keyword, a value, or a closure.
pub(super) fn action(value: Value, words: Words<Action>) -> Result<Action> {
    let option = value.name.clone();
    match value.needed()? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => word(&text, &option, words, OR_AN_ANSWER),
        closure @ Expr::Closure(_) => Ok(Action::Handler(Box::new(closure))),
        path @ Expr::Path(_) => Ok(Action::Path(Box::new(path))),
        value => Ok(Action::Value(Box::new(value))),
    }
}

pub(super) fn mode(value: Value) -> Result<ModeArg> {
    if let Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) = &value.expr
        && let Some((typed, ours)) = MODE_ELSEWHERE.iter().find(|(name, _)| *name == text.value())
    {
        return Err(Error::new(text.span(), format!("unknown mode \"{typed}\"; did you mean \"{ours}\"?")));
    }
    keyword(value, MODE)
}

pub(super) fn durability(value: Value) -> Result<DurabilityArg> {
    const KNOWN: &str =
        r#""acks=1" (replicas that must confirm, 1 to 255), "acks=all", "fsync=local", "fsync=1" or "master""#;
    let text = match value.needed()? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => text,
        literal @ Expr::Lit(_) => {
            return Err(Error::new(literal.span(), format!("expected {KNOWN}, or an expression of type `Durability`")));
        }
        other => return Ok(DurabilityArg::Expr(Box::new(other))),
    };
    let typed = text.value();
    let replicas = |count: &str| count.parse().ok().filter(|count| *count > 0);
    let read = match typed.split_once('=') {
        None if typed == "master" => Some(DurabilityArg::Master),
        Some(("acks", "all")) => Some(DurabilityArg::AllReplicas),
        Some(("acks", count)) => replicas(count).map(DurabilityArg::Acks),
        Some(("fsync", "local")) => Some(DurabilityArg::Fsync { replicas: 0 }),
        Some(("fsync", count)) => replicas(count).map(|replicas| DurabilityArg::Fsync { replicas }),
        _ => None,
    };
    read.ok_or_else(|| Error::new(text.span(), format!("unknown durability \"{}\". Write {KNOWN}", visible(&typed))))
}

pub(super) fn stripes(value: Value) -> Result<u32> {
    match value.needed()? {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
            let count = number.base10_parse().ok().filter(|count| (2..=4096).contains(count));
            count.ok_or_else(|| Error::new(number.span(), "stripes are between 2 and 4096"))
        }
        other => Err(Error::new(
            other.span(),
            "expected a number such as 64, written here: processes with different numbers would not exclude each other",
        )),
    }
}

/// Reads the value of an option that is one of these keywords.
pub(super) fn keyword<T: Clone>(value: Value, words: Words<T>) -> Result<T> {
    let option = value.name.clone();
    match value.needed()? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => word(&text, &option, words, ""),
        other => {
            let names: Vec<String> = words.iter().map(|(name, _)| format!("\"{name}\"")).collect();
            Err(Error::new(other.span(), format!("expected {}", names.join(" or "))))
        }
    }
}

/// Reads one of the keywords of an option.
fn word<T: Clone>(text: &LitStr, option: &str, words: Words<T>, or: &str) -> Result<T> {
    let typed = text.value();
    if let Some((_, found)) = words.iter().find(|(name, _)| *name == typed) {
        return Ok(found.clone());
    }
    let names: Vec<&str> = words.iter().map(|(name, _)| *name).collect();
    let near = did_you_mean(suggest::nearest(&typed, &names));
    let names = names.join("\", \"");
    Err(Error::new(text.span(), format!("unknown {option} \"{}\"{near} Known: \"{names}\"{or}", visible(&typed))))
}

/// Ends the sentence that reports an unknown word.
pub(super) fn did_you_mean(near: Option<&str>) -> String {
    near.map_or_else(|| ".".to_owned(), |near| format!("; did you mean \"{near}\"?"))
}

pub(super) fn map_err(value: Value) -> Result<Expr> {
    match value.needed()? {
        expr @ (Expr::Closure(_) | Expr::Path(_)) => Ok(expr),
        other => Err(Error::new(other.span(), "expected a closure |error| value, or the path of a function")),
    }
}

pub(super) fn label(value: Value) -> Result<LitStr> {
    match value.needed()? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if !text.value().trim().is_empty() => Ok(text),
        other => Err(Error::new(
            other.span(),
            "expected a string literal that is not empty: a label is the same for every key, so that metrics stay few",
        )),
    }
}

pub(super) fn guard_name(value: Value) -> Result<Ident> {
    let expr = value.needed()?;
    match &expr {
        Expr::Path(ExprPath { attrs, qself: None, path }) if attrs.is_empty() => path.get_ident().cloned(),
        _ => None,
    }
    .filter(|name| name != "self" && name != "Self" && name != "crate" && name != "super")
    .ok_or_else(|| Error::new(expr.span(), "expected a name for the guard, such as guard = lock"))
}

pub(super) fn crate_path(value: Value) -> Result<Path> {
    match value.needed()? {
        Expr::Path(ExprPath { qself: None, path, .. }) if path.segments.iter().all(|part| part.arguments.is_none()) => {
            Ok(path)
        }
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            text.parse_with(Path::parse_mod_style).map_err(|_| no_crate(text.span(), &text.value()))
        }
        other => Err(no_crate(other.span(), &other.to_token_stream().to_string())),
    }
}

fn no_crate(at: Span, found: &str) -> Error {
    let found = visible(found);
    Error::new(at, format!("expected the path of a crate or module, such as crate = ::lock_core, and found `{found}`"))
}

/// Takes a string literal.
pub(crate) fn string(expr: Expr) -> Result<LitStr> {
    match bare(expr) {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text),
        other => Err(Error::new(
            other.span(),
            r#"expected a string literal, such as "lock:user:<user_id>"; values go between the angle brackets"#,
        )),
    }
}

/// Removes the invisible group around the variable of a `macro_rules` macro.
pub(super) fn bare(expr: Expr) -> Expr {
    match expr {
        Expr::Group(group) => bare(*group.expr),
        other => other,
    }
}
