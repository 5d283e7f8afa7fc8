//! Checks a template against its function: names that are not parameters, and placeholders of other languages.

use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::{Error, LitStr};

use super::{Piece, Template};
use crate::expr::roots;
use crate::suggest::nearest;
use crate::text::{list, visible};

/// The names that a template may use: the parameters of the annotated function.
#[derive(Default)]
pub(crate) struct Names {
    /// The function.
    pub(crate) function: String,
    /// Every name that its parameters bind, without `r#`: `r#id` and `id` are one name.
    pub(crate) bound: Vec<String>,
    /// Whether it has a `self`.
    pub(crate) receiver: bool,
    /// Whether async-trait replaced a pattern by its own name.
    pub(crate) replaced: bool,
}

impl Names {
    /// Reports a name of the guard that would hide a parameter.
    pub(crate) fn hidden_by(&self, guard: &Ident) -> Option<Error> {
        let hidden = guard.unraw().to_string();
        self.binds(&hidden).then(|| {
            let free = ["lock", "guard", "lock_guard"].into_iter().find(|name| !self.binds(name));
            let (function, hidden) = (visible(&self.function), visible(&hidden));
            let advice = free.map_or_else(String::new, |free| format!(", such as guard = {free}"));
            Error::new(
                guard.span(),
                format!(
                    "guard = {} would hide the parameter \"{hidden}\" of \"{function}\"; choose another name{advice}",
                    visible(&guard.to_string())
                ),
            )
        })
    }

    /// Returns whether a parameter has this name.
    pub(crate) fn binds(&self, name: &str) -> bool {
        self.bound.iter().any(|bound| bound == name)
    }

    /// Returns the parameters as the source must write them.
    fn spelled(&self) -> Vec<String> {
        self.bound.iter().map(|name| spelled(name)).collect()
    }
}

/// Writes a name so that it is not read as a keyword.
fn spelled(name: &str) -> String {
    let as_it_is = name == "self" || syn::parse_str::<Ident>(name).is_ok();
    if as_it_is { name.to_owned() } else { format!("r#{name}") }
}

impl Template {
    /// Collects the mistakes that only show next to the function: names that are not parameters, and placeholders of
    /// other languages.
    pub(crate) fn check(&self, names: &Names) -> Vec<Error> {
        let mut errors = Vec::new();
        let mut told: Vec<String> = Vec::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => errors.extend(foreign_placeholder(&self.literal, text, names)),
                Piece::Value { expr, .. } => {
                    for root in roots(expr) {
                        if !told.contains(&root) {
                            errors.extend(unknown_name(&self.literal, &root, names));
                            told.push(root);
                        }
                    }
                }
            }
        }
        errors
    }
}

fn unknown_name(literal: &LitStr, root: &str, names: &Names) -> Option<Error> {
    let known = if root == "self" { names.receiver } else { names.binds(root) };
    // Constants and statics are left for the compiler to resolve.
    if known || root.starts_with(|c: char| c.is_uppercase()) {
        return None;
    }
    let Names { function, bound, replaced, .. } = names;
    let bound: Vec<&str> = bound.iter().map(String::as_str).collect();
    let mut message = format!("{} is not a parameter of \"{}\"", visible(&spelled(root)), visible(function));
    if let Some(near) = nearest(root, &bound) {
        message.push_str(&format!("; did you mean \"{}\"?", visible(&spelled(near))));
    } else if *replaced {
        message.push_str(
            "; async-trait hides names that are bound inside a pattern: bind the parameter to a name and take it apart \
             in the body",
        );
    } else if bound.is_empty() {
        message.push_str(", which has none");
    } else {
        let spelled = names.spelled();
        let spelled: Vec<&str> = spelled.iter().map(String::as_str).collect();
        message.push_str(&format!("; its parameters: {}", list(&spelled)));
    }
    Some(Error::new(literal.span(), message))
}

/// Finds `{x}`, `#x`, `#{x}`, `$x`, `${x}`, `%{x}`, `%(x)s` and `%s`, which this grammar takes as text.
fn foreign_placeholder(literal: &LitStr, text: &str, names: &Names) -> Option<Error> {
    const SHARED: &str = "would be sent to Redis as written; every call would share one lock";
    if names.bound.is_empty() && !names.receiver {
        return None;
    }
    for (at, opener) in text.match_indices(['{', '#', '$', '%']) {
        let after = &text[at + 1..];
        let found = match (opener, after.chars().next()) {
            ("{", _) => between(after, 0, '}'),
            (_, Some('{')) => between(after, 1, '}'),
            ("$" | "%", Some('(')) => between(after, 1, ')'),
            ("%", _) => None,
            _ => {
                let end = after.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(after.len());
                Some((&after[..end], &after[..end]))
            }
        };
        let Some((found, inner)) = found else { continue };
        let root = inner.split(['.', ':', '[', '(']).next().unwrap_or_default();
        let root = root.strip_prefix("r#").unwrap_or(root);
        if names.binds(root) || (root == "self" && names.receiver) {
            let (found, inner) = (visible(&format!("{opener}{found}")), visible(inner));
            return Some(Error::new(
                literal.span(),
                format!("`{found}` {SHARED}. Write <{inner}>, or {{<{inner}>}} for a hash tag"),
            ));
        }
    }
    let found = ["%s", "%d", "{}", "{:?}"].into_iter().find(|placeholder| text.contains(placeholder))?;
    let spelled = names.spelled();
    let advice = match spelled.as_slice() {
        [] => "<self.…>".to_owned(),
        [only] => format!("<{}>", visible(only)),
        several => {
            let several: Vec<&str> = several.iter().map(String::as_str).collect();
            format!("the value between angle brackets; the parameters: {}", list(&several))
        }
    };
    Some(Error::new(literal.span(), format!("`{found}` {SHARED}. Write {advice}")))
}

/// Returns the text up to and including the closing bracket, and the text inside.
fn between(text: &str, opening: usize, closing: char) -> Option<(&str, &str)> {
    let end = text.find(closing)?;
    Some((&text[..=end], text[opening..end].trim()))
}
