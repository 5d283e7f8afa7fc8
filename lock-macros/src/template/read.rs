//! Reads a template: text, and values between angle brackets.

use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::parse::Parser;
use syn::{Error, Expr, LitStr, Result};

use super::{Format, Piece};
use crate::text::visible;

/// The longest key, like in `lock_core`.
const MAX_KEY_BYTES: usize = 512;
/// The longest text between two angle brackets.
const MAX_VALUE_BYTES: usize = 512;
/// How deep brackets may be nested in a value.
const MAX_DEPTH: usize = 32;

/// Reads the text of a template.
pub(super) fn pieces(literal: &LitStr) -> Result<Vec<Piece>> {
    let text = literal.value();
    let fail = |message: String| Error::new(literal.span(), message);
    if text.is_empty() {
        return Err(fail("the key is empty, so every caller would share one lock; name what is locked".to_owned()));
    }
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text.as_str();
    // Each value has at least one byte.
    let (mut bytes, mut values) = (0, 0);
    while let Some(at) = rest.find(['<', '>']) {
        plain.push_str(&rest[..at]);
        let (bracket, after) = rest[at..].split_at(1);
        if after.starts_with(bracket) {
            plain.push_str(bracket);
            rest = &after[1..];
        } else if bracket == ">" {
            return Err(fail("stray `>` in the key; write `>>` for a literal `>`".to_owned()));
        } else {
            if !plain.is_empty() {
                bytes += plain.len();
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            let (piece, length) = value(after, literal)?;
            pieces.push(piece);
            values += 1;
            rest = &after[length..];
        }
        if bytes + plain.len() + values > MAX_KEY_BYTES {
            break;
        }
    }
    plain.push_str(rest);
    bytes += plain.len();
    if bytes + values > MAX_KEY_BYTES {
        return Err(fail(format!(
            "a key has at most {MAX_KEY_BYTES} bytes, and the fixed text of this one has more; shorten it, or lock \
             a hash of it"
        )));
    }
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    if let Some((left, right)) = unseparated(&pieces) {
        let (left, right) = (visible(left), visible(right));
        return Err(fail(format!(
            "nothing separates <{left}> from <{right}> in the key, so (\"1\", \"23\") and (\"12\", \"3\") would share one \
             lock; put a delimiter between them, as in <{left}>:<{right}>"
        )));
    }
    Ok(pieces)
}

/// Reads one value, up to and including its closing bracket. This is the shortest prefix that is an expression.
fn value(text: &str, literal: &LitStr) -> Result<(Piece, usize)> {
    let fail = |message: String| Error::new(literal.span(), message);
    let mut forbidden = None;
    for (end, _) in text.match_indices('>') {
        let content = &text[..end];
        if end > MAX_VALUE_BYTES {
            break;
        }
        if depth(content) > MAX_DEPTH {
            return Err(fail(format!(
                "brackets are nested more than {MAX_DEPTH} deep in the key, at <{}>; compute the value before the call",
                visible(content)
            )));
        }
        let (expr, format) = match LitStr::new(content, literal.span()).parse::<Expr>() {
            Ok(expr) => (expr, Format::Plain),
            Err(_) => match with_spec(content, literal) {
                Some((expr, spec)) if spec == "raw" => (expr, Format::Raw),
                Some((expr, spec)) => (expr, Format::Spec(spec)),
                None => continue,
            },
        };
        match crate::expr::check(&expr) {
            Ok(()) => {
                let source = content.trim().to_owned();
                return Ok((Piece::Value { source, expr: Box::new(expr), format }, end + 1));
            }
            Err(what) => {
                forbidden.get_or_insert((content, what));
            }
        }
    }
    Err(fail(match (forbidden, text.split_once('>')) {
        (Some((content, what)), _) => {
            format!("<{}> in the key: {what} cannot be used here; compute the value before the call", visible(content))
        }
        (None, None) => "this `<` is never closed; write `<<` for a literal `<`".to_owned(),
        (None, Some((content, _))) if content.trim().is_empty() => {
            "<> in the key names no value; write the parameter between the brackets".to_owned()
        }
        (None, Some((content, _))) if content.len() > MAX_VALUE_BYTES => format!(
            "<{}> in the key is longer than {MAX_VALUE_BYTES} bytes; compute the value before the call",
            visible(content)
        ),
        (None, Some((content, _))) if is_keyword(content) => format!(
            "<{0}> in the key is a keyword; write <r#{0}> for a parameter of that name",
            visible(content.trim())
        ),
        (None, Some((content, _))) => {
            format!("<{}> in the key is not a Rust expression; write `<<` for a literal `<`", visible(content))
        }
    }))
}

/// Returns how deep brackets are nested, including brackets in texts.
fn depth(content: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    for byte in content.bytes() {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest
}

fn is_keyword(content: &str) -> bool {
    Ident::parse_any.parse_str(content).is_ok() && syn::parse_str::<Ident>(&format!("r#{}", content.trim())).is_ok()
}

/// Finds two values whose separating text cannot show where the first one ends. An encoding in a value consists of `%`
/// and hexadecimal digits, so these do not separate.
fn unseparated(pieces: &[Piece]) -> Option<(&str, &str)> {
    let mut last: Option<&str> = None;
    for piece in pieces {
        match piece {
            Piece::Text(text) if text.chars().any(|c| !matches!(c, '%' | '0'..='9' | 'A'..='F')) => last = None,
            Piece::Text(_) => {}
            Piece::Value { format: Format::Raw, .. } => last = None,
            Piece::Value { source, .. } => {
                if let Some(left) = last.replace(source) {
                    return Some((left, source));
                }
            }
        }
    }
    None
}

/// Splits `expr:spec` at the last colon that is not half of `::`.
fn with_spec(content: &str, literal: &LitStr) -> Option<(Expr, String)> {
    let bytes = content.as_bytes();
    let colon = (0..bytes.len())
        .rev()
        .find(|at| bytes[*at] == b':' && bytes.get(at + 1) != Some(&b':') && (*at == 0 || bytes[at - 1] != b':'))?;
    let spec = &content[colon + 1..];
    if spec.is_empty() || spec.contains(['{', '}', '"', '\\']) {
        return None;
    }
    let expr = LitStr::new(&content[..colon], literal.span()).parse().ok()?;
    Some((expr, spec.to_owned()))
}
