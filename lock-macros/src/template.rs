//! Key templates: `"lock:user:<user_id>"`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Error, Expr, LitStr, Path, Result};

use crate::expr::roots;
use crate::suggest::nearest;

/// One template, read.
pub(crate) struct Template {
    /// The literal as the user wrote it.
    pub(crate) literal: LitStr,
    pieces: Vec<Piece>,
}

/// A run of text, or one value.
enum Piece {
    Text(String),
    Value {
        /// What stands between the angle brackets, for error messages.
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
    /// By `Display`, as it is.
    Raw,
}

/// The names that a template may use: the parameters of the annotated function.
#[derive(Default)]
pub(crate) struct Names {
    /// The function.
    pub(crate) function: String,
    /// Every name that its parameters bind.
    pub(crate) bound: Vec<String>,
    /// Whether it has a `self`.
    pub(crate) receiver: bool,
    /// Whether async-trait replaced a pattern by a name of its own.
    pub(crate) replaced: bool,
}

impl Names {
    /// Complains of a name of the guard that would hide a parameter.
    pub(crate) fn hidden_by(&self, guard: &Ident) -> Option<Error> {
        self.bound.iter().any(|name| guard == name).then(|| {
            let free = ["lock", "guard", "lock_guard"].into_iter().find(|name| !self.bound.iter().any(|bound| bound == name));
            let function = &self.function;
            let advice = free.map_or_else(String::new, |free| format!(", such as guard = {free}"));
            Error::new(
                guard.span(),
                format!("guard = {guard} would hide the parameter \"{guard}\" of \"{function}\"; choose another name{advice}"),
            )
        })
    }
}

impl Template {
    /// Reads a template.
    pub(crate) fn parse(literal: LitStr) -> Result<Self> {
        let text = literal.value();
        let fail = |message: String| Error::new(literal.span(), message);
        if text.is_empty() {
            return Err(fail("the key is empty, so every caller would share one lock; name what is locked".to_owned()));
        }
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text.as_str();
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
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                let (piece, length) = value(after, &literal)?;
                pieces.push(piece);
                rest = &after[length..];
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        if let Some((left, right)) = unseparated(&pieces) {
            return Err(fail(format!(
                "nothing separates <{left}> from <{right}> in the key, so (\"1\", \"23\") and (\"12\", \"3\") would share one \
                 lock; put a delimiter between them, as in <{left}>:<{right}>"
            )));
        }
        Ok(Self { literal, pieces })
    }

    /// The text before the first value, if there is a value.
    pub(crate) fn prefix(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [Piece::Text(text), Piece::Value { .. }, ..] => Some(text),
            [Piece::Value { .. }, ..] => Some(""),
            _ => None,
        }
    }

    /// The name of the set of stripes: the text before the first value, without the delimiter at its end.
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

    /// Collects the mistakes that only show next to the function: names that are no parameters,
    /// and placeholders of other languages.
    pub(crate) fn check(&self, names: &Names) -> Vec<Error> {
        let mut errors = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => errors.extend(self.foreign_placeholder(text, names)),
                Piece::Value { expr, .. } => {
                    errors.extend(roots(expr).into_iter().filter_map(|root| self.unknown_name(&root, names)));
                }
            }
        }
        errors
    }

    fn unknown_name(&self, root: &str, names: &Names) -> Option<Error> {
        let known = if root == "self" { names.receiver } else { names.bound.iter().any(|name| name == root) };
        // Constants and statics are for the compiler to resolve.
        if known || root.starts_with(|c: char| c.is_uppercase()) {
            return None;
        }
        let Names { function, bound, replaced, .. } = names;
        let bound: Vec<&str> = bound.iter().map(String::as_str).collect();
        let mut message = format!("{root} is not a parameter of \"{function}\"");
        if let Some(near) = nearest(root, &bound) {
            message.push_str(&format!("; did you mean \"{near}\"?"));
        } else if *replaced {
            message.push_str(
                "; async-trait hides names that are bound inside a pattern: bind the parameter to a name and take it apart \
                 in the body",
            );
        } else if bound.is_empty() {
            message.push_str(", which has none");
        } else {
            message.push_str(&format!("; its parameters: {}", bound.join(", ")));
        }
        Some(Error::new(self.literal.span(), message))
    }

    /// Finds `{x}`, `#x`, `#{x}`, `${x}` and `%s`, which this grammar takes as text.
    fn foreign_placeholder(&self, text: &str, names: &Names) -> Option<Error> {
        let first = names.bound.first()?;
        let shared = "would be sent to Redis as written; every call would share one lock";
        if text.contains("%s") || text.contains("{}") {
            let found = if text.contains("%s") { "%s" } else { "{}" };
            return Some(Error::new(self.literal.span(), format!("`{found}` {shared}. Write <{first}>")));
        }
        for (at, opener) in text.match_indices(['{', '#']) {
            let inner = &text[at + 1..];
            let (inner, braced) = match (opener, inner.strip_prefix('{')) {
                ("#", Some(inner)) => (inner, true),
                _ => (inner, opener == "{"),
            };
            let inner = if braced {
                let Some((inner, _)) = inner.split_once('}') else { continue };
                inner.trim()
            } else {
                &inner[..inner.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(inner.len())]
            };
            let root = inner.split(['.', ':', '[', '(']).next().unwrap_or_default();
            if !(names.bound.iter().any(|name| name == root) || (root == "self" && names.receiver)) {
                continue;
            }
            let prefix = if opener == "{" && text[..at].ends_with('$') { "$" } else { "" };
            let found = match (opener, braced) {
                ("{", _) => format!("{prefix}{{{inner}}}"),
                (_, true) => format!("#{{{inner}}}"),
                (_, false) => format!("#{inner}"),
            };
            return Some(Error::new(
                self.literal.span(),
                format!("`{found}` {shared}. Write <{inner}>, or {{<{inner}>}} for a hash tag"),
            ));
        }
        None
    }

    /// Spells the expression of type `Result<LockKey, LockError>` that renders this key.
    pub(crate) fn render(&self, krate: &Path) -> TokenStream {
        let span = Span::mixed_site();
        let label = &self.literal;
        let steps = self.pieces.iter().map(|piece| match piece {
            Piece::Text(text) => quote_spanned!(span=> .text(#text)),
            Piece::Value { source, expr, format: format @ (Format::Plain | Format::Raw) } => {
                let value = quote_spanned!(span.located_at(label.span())=> #krate::__private::shown(&(#expr)));
                let name = Ident::new(if matches!(format, Format::Raw) { "raw" } else { "segment" }, span);
                quote_spanned!(span=> .#name(#source, #value))
            }
            Piece::Value { source, expr, format: Format::Spec(spec) } => {
                let format = LitStr::new(&format!("{{:{spec}}}"), label.span());
                let arguments = quote!(#format, #expr);
                quote_spanned!(span=> .segment(#source, ::core::format_args!(#arguments)))
            }
        });
        // A statement of its own: what `format_args!` borrows must not live across an await.
        quote_spanned!(span=> {
            let __key = #krate::KeyBuilder::new(#label) #(#steps)* .finish();
            __key
        })
    }
}

/// Reads one value, up to and with its closing bracket: the shortest prefix that is an expression.
fn value(text: &str, literal: &LitStr) -> Result<(Piece, usize)> {
    let mut forbidden = None;
    for (end, _) in text.match_indices('>') {
        let content = &text[..end];
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
    Err(Error::new(
        literal.span(),
        match (forbidden, text.split_once('>')) {
            (Some((content, what)), _) => {
                format!("<{content}> in the key: {what} cannot be used here; compute the value before the call")
            }
            (None, None) => "this `<` is never closed; write `<<` for a literal `<`".to_owned(),
            (None, Some((content, _))) if content.trim().is_empty() => {
                "<> in the key names no value; write the parameter between the brackets".to_owned()
            }
            (None, Some((content, _))) => {
                format!("<{content}> in the key is no Rust expression; write `<<` for a literal `<`")
            }
        },
    ))
}

/// Finds two values with no text between them that could say where the first one ends. An encoding in a
/// value is made of `%` and digits, so these cannot.
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

#[cfg(test)]
mod tests {
    use proc_macro2::Span;
    use syn::LitStr;

    use super::{Format, Names, Piece, Template};

    fn parse(text: &str) -> Result<Template, String> {
        Template::parse(LitStr::new(text, Span::call_site())).map_err(|error| error.to_string())
    }

    /// Shows text as it is and values in parentheses.
    fn shape(text: &str) -> String {
        let template = parse(text).unwrap();
        template
            .pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Value { source, format: Format::Plain, .. } => format!("({source})"),
                Piece::Value { source, format: Format::Spec(spec), .. } => format!("({source} | {spec})"),
                Piece::Value { source, format: Format::Raw, .. } => format!("({source} as it is)"),
            })
            .collect()
    }

    #[test]
    fn finds_the_values() {
        assert_eq!(shape("lock:user:<user_id>"), "lock:user:(user_id)");
        assert_eq!(shape("{<tenant>}:order:<self.id>"), "{(tenant)}:order:(self.id)");
        assert_eq!(shape("a<<b>>c"), "a<b>c");
        assert_eq!(shape("k:<x.get::<u8>()>"), "k:(x.get::<u8>())");
        assert_eq!(shape(r#"k:<m["a>b"]>!"#), r#"k:(m["a>b"])!"#);
        assert_eq!(shape("<id:08>"), "(id:08 | 08)");
        assert_eq!(shape("<id:?>"), "(id:? | ?)");
        assert_eq!(shape("<id:>8>"), "(id:>8 | >8)");
        assert_eq!(shape("<id:raw>:<a::B:raw>"), "(id:raw as it is):(a::B:raw as it is)");
        assert_eq!(shape("<w>x<h>"), "(w)x(h)");
        assert_eq!(shape("<a><b:raw><c>"), "(a)(b:raw as it is)(c)");
        assert_eq!(shape("<a::B>"), "(a::B)");
        assert_eq!(shape("<t.0>-<v[1]>"), "(t.0)-(v[1])");
        assert_eq!(shape("<<<id>>>"), "<(id)>");
    }

    #[test]
    fn refuses_what_it_cannot_read() {
        for (text, part) in [
            ("", "the key is empty"),
            ("k:<id", "never closed; write `<<`"),
            ("k:id>", "stray `>`"),
            ("k:<>", "names no value"),
            ("k:<user id>", "no Rust expression"),
            ("k:<f().await>", "`.await` cannot be used here"),
            ("k:<a?>", "`?` cannot be used here"),
            ("k:<{ 1 }>", "a block cannot be used here"),
            ("k:<|x| x>", "a closure cannot be used here"),
            ("k:<format!(\"x\")>", "a macro cannot be used here"),
            ("k:<a><b>", "put a delimiter between them, as in <a>:<b>"),
            ("k:<a>%4F<b>", "nothing separates <a> from <b>"),
            ("k:<a = b>", "an assignment cannot be used here"),
        ] {
            let message = parse(text).err().unwrap_or_else(|| panic!("{text} was accepted"));
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    fn complaints(text: &str) -> Vec<String> {
        let names = Names {
            function: "charge".to_owned(),
            bound: vec!["user_id".to_owned(), "amount".to_owned()],
            ..Names::default()
        };
        parse(text).unwrap().check(&names).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn knows_the_parameters() {
        assert!(complaints("k:<user_id>:<amount.currency()>:<PREFIX>:<util::shard(user_id)>").is_empty());
        assert_eq!(complaints("<usr_id>"), [r#"usr_id is not a parameter of "charge"; did you mean "user_id"?"#]);
        assert_eq!(complaints("<zzz.id>"), [r#"zzz is not a parameter of "charge"; its parameters: user_id, amount"#]);
        assert_eq!(complaints("<self.id>").len(), 1);
    }

    #[test]
    fn knows_other_languages() {
        for text in ["k:{user_id}", "k:#user_id", "k:#{user_id}", "k:${user_id}", "k:{user_id.id}", "k:%s", "k:{}"] {
            let found = complaints(text);
            assert_eq!(found.len(), 1, "{text}");
            assert!(
                found[0].contains("would be sent to Redis as written; every call would share one lock. Write <user_id")
            );
        }
        for text in ["{orders}:<user_id>", "a#1", "{<user_id>}", "100%"] {
            assert!(complaints(text).is_empty(), "{text}");
        }
    }
}
