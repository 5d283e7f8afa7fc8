//! Key templates: `"lock:user:<user_id>"`.

mod names;
mod read;

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::{Error, Expr, LitStr, Path, Result};

use crate::expr::roots;

pub(crate) use names::Names;

/// One template, parsed.
pub(crate) struct Template {
    /// The literal as the user wrote it.
    pub(crate) literal: LitStr,
    pieces: Vec<Piece>,
}

/// A piece of text, or one value.
enum Piece {
    Text(String),
    Value {
        /// The text between the angle brackets, for error messages.
        source: String,
        expr: Box<Expr>,
        format: Format,
    },
}

/// How a value becomes text.
enum Format {
    /// By `Display`, encoded.
    Plain,
    /// By a spec of `std::fmt`, encoded.
    Spec(String),
    /// By `Display`, not encoded.
    Raw,
}

impl Template {
    /// Reads a template.
    pub(crate) fn parse(literal: LitStr) -> Result<Self> {
        let pieces = read::pieces(&literal)?;
        Ok(Self { literal, pieces })
    }

    /// Returns the text before the first value, if there is a value.
    pub(crate) fn prefix(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [Piece::Text(text), Piece::Value { .. }, ..] => Some(text),
            [Piece::Value { .. }, ..] => Some(""),
            _ => None,
        }
    }

    /// Returns the name of the set of stripes: the text before the first value, without the delimiter at its end.
    pub(crate) fn name_of_stripes(&self) -> Result<&str> {
        let name = self.prefix().unwrap_or_default().trim_end_matches(|c: char| !c.is_alphanumeric());
        if name.is_empty() {
            return Err(Error::new(
                self.literal.span(),
                "stripes are named by the text before the first <value> of the key, and there is none; write \
                 key = \"user:<id>\"",
            ));
        }
        Ok(name)
    }

    /// Returns the expression of type `Result<LockKey, LockError>` that renders this key.
    pub(crate) fn render(&self, krate: &Path) -> TokenStream {
        let span = Span::mixed_site();
        let label = &self.literal;
        let at = span.located_at(label.span());
        let steps = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => quote_spanned!(span=> .text(#text)),
            Piece::Value { source, expr, format: format @ (Format::Plain | Format::Raw) } => {
                let expr = placed(expr, label.span());
                let value = quote_spanned!(at=> #krate::attribute::shown(&(#expr)));
                let name = Ident::new(if matches!(format, Format::Raw) { "raw" } else { "segment" }, span);
                quote_spanned!(span=> .#name(#source, #value))
            }
            Piece::Value { source, expr, format: Format::Spec(spec) } => {
                let format = LitStr::new(&format!("{{:{spec}}}"), label.span());
                let expr = placed(expr, label.span());
                quote_spanned!(span=> .segment(#source, ::core::format_args!(#format, #expr)))
            }
        });
        // A separate statement, because the borrows of `format_args!` must not live across an await.
        quote_spanned!(span=> {
            let __key = #krate::KeyBuilder::new(#label) #(#steps)* .finish();
            __key
        })
    }
}

/// Marks an expression as generated at the place of the whole literal. A suggestion of the compiler or of clippy must
/// not replace the key. The names that the expression starts from keep their own place, so that they resolve where the
/// key was written.
fn placed(expr: &Expr, at: Span) -> TokenStream {
    fn place(tokens: TokenStream, roots: &[String], span: Span) -> TokenStream {
        let place = |tree| match tree {
            TokenTree::Ident(name) if roots.contains(&name.unraw().to_string()) => TokenTree::Ident(name),
            TokenTree::Group(group) => {
                let mut placed = Group::new(group.delimiter(), place(group.stream(), roots, span));
                placed.set_span(span);
                TokenTree::Group(placed)
            }
            mut other => {
                other.set_span(span);
                other
            }
        };
        tokens.into_iter().map(place).collect()
    }
    place(expr.to_token_stream(), &roots(expr), Span::call_site().located_at(at))
}

#[cfg(test)]
mod tests;
