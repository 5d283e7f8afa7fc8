//! Limits the input of the macros. Deeper or longer input would crash the compiler.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::{Error, Result};

/// How deep brackets may be nested.
const MAX_DEPTH: usize = 64;
/// How many tokens an attribute may have. Tokens without brackets nest too, for example `!!!x`. Their reader takes up
/// to 8 KB of stack for each, and the compiler has 8 MB.
const MAX_TOKENS: usize = 600;

/// Refuses arguments that could not be read without a crash. `what` is the name of the macro.
pub(crate) fn check_arguments(tokens: &TokenStream, what: &str) -> Result<()> {
    let mut left = MAX_TOKENS;
    check(tokens.clone(), MAX_DEPTH, &mut left).map_err(|(at, excess)| {
        let excess = match excess {
            Excess::Depth => format!("brackets are nested more than {MAX_DEPTH} deep in {what}"),
            Excess::Tokens => format!("{what} has more than {MAX_TOKENS} tokens"),
        };
        Error::new(at, format!("{excess}; put an expression that is long into a function"))
    })
}

/// Refuses a signature that could not be read without a crash. The compiler reads types of any depth, but `syn` reads
/// them on one stack.
pub(crate) fn check_signature(tokens: TokenStream) -> Result<()> {
    let too_deep = check(tokens.clone(), MAX_DEPTH, &mut { usize::MAX }).map_err(|(at, _)| at);
    too_deep.and_then(|()| check_types(tokens)).map_err(|at| {
        let sentence = "types are nested more than {} deep in the signature of this function; give them names";
        Error::new(at, sentence.replace("{}", &MAX_DEPTH.to_string()))
    })
}

/// Finds types that are nested without brackets, for example `&&T`, `A<A<T>>` and `fn() -> fn() -> T`.
fn check_types(tokens: TokenStream) -> std::result::Result<(), Span> {
    // Counts the open angle brackets, and the prefixes before a type. A comma ends the prefixes.
    let (mut angles, mut before, mut last) = (0_usize, 0_usize, ' ');
    for tree in tokens {
        let mark = match &tree {
            TokenTree::Punct(mark) => mark.as_char(),
            TokenTree::Group(group) => {
                check_types(group.stream())?;
                ' '
            }
            _ => ' ',
        };
        match mark {
            '<' => angles += 1,
            '>' if last == '-' => {}
            '>' => angles = angles.saturating_sub(1),
            '&' | '*' | '-' | '!' | '@' => before += 1,
            ',' => before = 0,
            _ => {}
        }
        if angles > MAX_DEPTH || before > MAX_DEPTH {
            return Err(tree.span());
        }
        last = mark;
    }
    Ok(())
}

/// The limit that was exceeded.
enum Excess {
    Depth,
    Tokens,
}

fn check(tokens: TokenStream, depth: usize, left: &mut usize) -> std::result::Result<(), (Span, Excess)> {
    for tree in tokens {
        *left = left.checked_sub(1).ok_or_else(|| (tree.span(), Excess::Tokens))?;
        if let TokenTree::Group(group) = tree {
            let depth = depth.checked_sub(1).ok_or_else(|| (group.span_open(), Excess::Depth))?;
            check(group.stream(), depth, left)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_signature;

    fn reads(signature: &str) -> bool {
        check_signature(signature.parse().unwrap()).is_ok()
    }

    #[test]
    fn types_nest_as_deep_as_anybody_writes_them_and_no_deeper() {
        for (open, close) in [
            ("&", ""),
            ("&'a mut ", ""),
            ("*const ", ""),
            ("Vec<", ">"),
            ("fn() -> ", ""),
            ("impl Fn() -> ", ""),
            ("(", ",)"),
        ] {
            let nested = |depth| format!("fn f(x: {}u8{})", open.repeat(depth), close.repeat(depth));
            assert!(reads(&nested(60)), "{open}");
            assert!(!reads(&nested(1000)), "{open}");
            assert!(!reads(&format!("fn f() -> A<{{ 1 }}, {}u8{}>", open.repeat(1000), close.repeat(1000))), "{open}");
        }
        assert!(!reads(&format!("fn f({}x: u8)", "x @ ".repeat(1000))));
        assert!(!reads(&format!("fn f(x: [u8; {}1])", "-".repeat(1000))));
    }

    #[test]
    fn a_long_signature_is_not_a_deep_one() {
        assert!(reads(&format!("fn f({})", "x: &A<fn(&u8) -> Vec<u8>>, ".repeat(1000))));
        assert!(reads(&format!("fn f() where {}", "T: Fn() -> A<u8>, ".repeat(1000))));
    }
}
