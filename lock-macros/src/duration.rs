//! Durations: `"10s"`, `"1m30s"`, or an expression of type `Duration`.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprLit, Lit, Result};

use crate::text::visible;

/// Unit names with their milliseconds, from large to small.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The value of an option that takes a duration.
#[derive(Clone)]
pub(crate) enum DurationArg {
    /// Known at compile time, so its bounds are checked at compile time.
    Known(Duration, Span),
    /// Evaluated by the caller's program.
    Expr(Box<Expr>),
}

impl DurationArg {
    /// Reads the value of an option.
    pub(crate) fn from_expr(expr: Expr) -> Result<Self> {
        match expr {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => match parse(&text.value()) {
                Ok(value) => Ok(Self::Known(value, text.span())),
                Err(message) => Err(Error::new(text.span(), message)),
            },
            Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => {
                Err(Error::new(number.span(), missing_unit(number.base10_digits())))
            }
            Expr::Lit(other) => Err(Error::new(other.span(), r#"expected a duration such as "10s" or "1m30s""#)),
            other => Ok(Self::Expr(Box::new(other))),
        }
    }

    /// Returns the duration, if it is known at compile time.
    pub(crate) fn known(&self) -> Option<Duration> {
        match self {
            Self::Known(value, _) => Some(*value),
            Self::Expr(_) => None,
        }
    }

    /// Returns the place of the value in the user's source.
    pub(crate) fn span(&self) -> Span {
        match self {
            Self::Known(_, span) => *span,
            Self::Expr(expr) => expr.span(),
        }
    }
}

impl ToTokens for DurationArg {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        tokens.extend(match self {
            Self::Known(value, _) => constant(*value),
            Self::Expr(expr) => expr.to_token_stream(),
        });
    }
}

/// Writes a duration as a constant expression.
pub(crate) fn constant(value: Duration) -> TokenStream {
    let span = Span::mixed_site();
    let (seconds, millis) = (value.as_secs(), u64::from(value.subsec_millis()));
    if millis == 0 {
        quote_spanned!(span=> ::core::time::Duration::from_secs(#seconds))
    } else {
        let millis = seconds * 1_000 + millis;
        quote_spanned!(span=> ::core::time::Duration::from_millis(#millis))
    }
}

fn missing_unit(digits: &str) -> String {
    let digits = visible(digits);
    format!(r#"missing unit: write "{digits}s" or "{digits}ms""#)
}

/// Reads a compound such as `1m30s`. It accepts the same texts as `lock_core::store::text::duration`, which a macro of that
/// crate cannot call. A test compares the two.
fn parse(text: &str) -> std::result::Result<Duration, String> {
    const SHAPE: &str = r#"expected a duration such as "10s", "250ms" or "1m30s""#;
    if text.is_empty() {
        return Err(SHAPE.to_owned());
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(missing_unit(text));
    }
    let shown = visible(text);
    let mut rest = text;
    let mut total: u64 = 0;
    let mut last_unit = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        if number.is_empty() {
            return Err(SHAPE.to_owned());
        }
        if unit.is_empty() {
            return Err(format!(r#"missing unit after "{}" in "{shown}": use ms, s, m, h or d"#, visible(number)));
        }
        let Some((_, millis)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(if unit.starts_with('.') {
                format!(
                    "\"{shown}\" has a fraction: write whole numbers, such as \"1500ms\" for one and a half seconds"
                )
            } else {
                format!("unknown unit \"{}\" in \"{shown}\": use ms, s, m, h or d, as in \"1m30s\"", visible(unit))
            });
        };
        if *millis >= last_unit {
            return Err(format!("\"{shown}\": write each unit once, from large to small, as in \"1m30s\""));
        }
        last_unit = *millis;
        let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*millis));
        let Some(sum) = part.and_then(|part| total.checked_add(part)) else {
            return Err(format!("\"{shown}\" is too long a time to count in milliseconds"));
        };
        total = sum;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse;

    #[test]
    fn reads_units_and_compounds() {
        for (text, millis) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("2h", 7_200_000),
            ("1d12h", 129_600_000),
            ("1s500ms", 1_500),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, part) in [
            ("10", r#"missing unit: write "10s" or "10ms""#),
            ("", "expected a duration"),
            ("s", "expected a duration"),
            ("-5s", "expected a duration"),
            ("1.5s", "1500ms"),
            ("10sec", "unknown unit \"sec\""),
            ("10 s", "unknown unit \" s\""),
            ("1m30", "missing unit after \"30\""),
            ("30s1m", "from large to small"),
            ("1s1s", "each unit once"),
            ("99999999999999999999d", "too long"),
            ("18446744073709551615s", "too long"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn it_reads_what_options_read_and_refuses_what_they_refuse() {
        const PARTS: [&str; 16] = [
            "d",
            "h",
            "m",
            "s",
            "ms",
            "1",
            "30",
            "0",
            "500",
            "18446744073709551615",
            "d1h",
            "m30",
            " ",
            ".5",
            "-",
            "é",
        ];
        let mut state = 0x2545_F491_4F6C_DD1D_u64;
        let mut draw = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        };
        let mut read = 0;
        for _ in 0..20_000 {
            // Half of the texts are mostly numbers before units.
            let is_orderly = draw(2) == 0;
            let part = |draw: &mut dyn FnMut(usize) -> usize, at: usize| {
                PARTS[if is_orderly && draw(20) > 0 { [5 + draw(5), draw(5)][at % 2] } else { draw(PARTS.len()) }]
            };
            let length = draw(7);
            let text: String = (0..length).map(|at| part(&mut draw, at)).collect();
            let (here, there) = (parse(&text), crate::store::duration(&text));
            assert_eq!(here.as_ref().ok(), there.as_ref().ok(), "{text:?}: {here:?}, {there:?}");
            read += usize::from(here.is_ok());
        }
        assert!((1_000..15_000).contains(&read), "{read} of them are durations");
    }
}
