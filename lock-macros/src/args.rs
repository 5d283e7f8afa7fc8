//! The arguments of the attribute: each at most once, in any order. All mistakes are reported together.

mod options;
mod rules;
mod values;

use std::ops::Deref;

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, Expr, Ident, LitStr, Path, Result, Token};

use crate::text::visible;
use crate::{bounds, suggest};
use values::{Value, bare, did_you_mean};

pub(crate) use options::{Options, table_of_options};
pub(crate) use rules::{FunctionForm, show};
pub(crate) use values::{Action, DurabilityArg, KeysArg, MinHoldOn, ModeArg, RenewArg, WaitArg, string};

/// One option as it was written: the place of its name, and its value.
#[derive(Clone)]
pub(crate) struct Arg<T> {
    pub(crate) name: Span,
    /// How many arguments stand before it.
    pub(crate) order: usize,
    pub(crate) value: T,
}

impl<T> Arg<T> {
    /// Returns the place of the option.
    fn place(&self) -> Arg<()> {
        Arg { name: self.name, order: self.order, value: () }
    }
}

/// All arguments.
#[derive(Default)]
pub(crate) struct Args {
    options: Options,
    /// How many arguments were read.
    read: usize,
    /// Whether a key was written, even one that could not be read.
    pub(crate) key_was_tried: bool,
}

impl Deref for Args {
    type Target = Options;

    fn deref(&self) -> &Options {
        &self.options
    }
}

impl Args {
    /// Reads the arguments. Returns the readable ones next to the mistakes, so that the function can also be checked
    /// against them.
    pub(crate) fn parse(tokens: proc_macro2::TokenStream) -> (Self, Vec<Error>) {
        let mut args = Self::default();
        let mut errors = Vec::new();
        if let Err(error) = bounds::check_arguments(&tokens, "the attribute") {
            args.key_was_tried = true;
            return (args, vec![error]);
        }
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
        args.skip_jobs();
        args.spread_on_refused();
        (args, errors)
    }

    /// Returns the path of the library.
    pub(crate) fn krate(&self) -> Path {
        self.krate.as_ref().map_or_else(default_crate, |krate| krate.value.clone())
    }

    fn parse_one(&mut self, input: ParseStream<'_>) -> Result<()> {
        if let Ok(literal) = input.fork().parse::<LitStr>() {
            let text = literal.value();
            self.key_was_tried = true;
            return Err(Error::new(
                literal.span(),
                format!("an argument has a name: write key = \"{}\"", visible(&text)),
            ));
        }
        let ident = input.call(Ident::parse_any)?;
        let name = ident.unraw().to_string();
        self.key_was_tried |= name == "key" || name == "keys";
        let expr = if let Some(equals) = input.parse::<Option<Token![=]>>()? {
            if input.is_empty() || input.peek(Token![,]) {
                return Err(Error::new(equals.span, format!("\"{}\" needs a value: write {0} = …", visible(&name))));
            }
            // A fork, so that a value that fails half-way is skipped from its start.
            let ahead = input.fork();
            let value = ahead.parse::<Expr>()?;
            syn::parse::discouraged::Speculative::advance_to(input, &ahead);
            Some(bare(value))
        } else {
            None
        };
        let value = Value { name, span: ident.span(), expr };
        let name = Name { ident, order: self.read };
        self.read += 1;
        self.options.read(name, value)
    }

    /// Returns the place of the option that makes the function a job.
    pub(crate) fn job(&self) -> Option<Arg<()>> {
        let every = self.at_most_every.as_ref().or(self.once_every.as_ref());
        every.map(Arg::place).or(self.once_at.as_ref().map(Arg::place))
    }

    /// Skips a job whose lock is taken or whose run is done.
    fn skip_jobs(&mut self) {
        if let Some(Arg { name, order, .. }) = self.job() {
            self.options.on_busy.get_or_insert(Arg { name, order, value: Action::Skip });
        }
    }

    /// Uses `on_refused` for each of the three options that is not written.
    fn spread_on_refused(&mut self) {
        if let Some(refused) = &self.options.on_refused {
            for option in [&mut self.options.on_busy, &mut self.options.on_error, &mut self.options.on_lost] {
                option.get_or_insert_with(|| refused.clone());
            }
        }
    }
}

/// The name of an argument, and how many arguments stand before it.
struct Name {
    ident: Ident,
    order: usize,
}

/// Fills one option. Only this function does, so an option cannot be written twice.
fn fill<T>(slot: &mut Option<Arg<T>>, name: Name, value: Result<T>) -> Result<()> {
    let Name { ident, order } = name;
    if slot.is_some() {
        return Err(Error::new(ident.span(), format!("\"{}\" is given twice; keep one", ident.unraw())));
    }
    *slot = Some(Arg { name: ident.span(), order, value: value? });
    Ok(())
}

/// Reports two options that are both written, at the later one.
fn clash<L, R>(left: &Option<Arg<L>>, right: Option<&Arg<R>>, sentence: &str) -> Option<Error> {
    let (left, right) = (left.as_ref()?, right?);
    let later = if left.order > right.order { left.name } else { right.name };
    Some(Error::new(later, sentence))
}

fn skip_argument(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) {
        // Any token tree can be skipped, so this never fails.
        let _ = input.parse::<proc_macro2::TokenTree>();
    }
}

fn unknown(name: &Ident) -> Error {
    let typed = name.unraw().to_string();
    let near = did_you_mean(suggest::option(&typed, options::KNOWN));
    Error::new(
        name.span(),
        format!("unknown argument \"{}\"{near} Known: {}", visible(&typed), options::KNOWN.join(", ")),
    )
}

/// Returns the path under which users know the library, unless they renamed it.
pub(crate) fn default_crate() -> Path {
    let mut path = Path::from(Ident::new("lock_core", Span::mixed_site()));
    path.leading_colon = Some(Token![::](Span::mixed_site()));
    path
}

#[cfg(test)]
mod tests;
