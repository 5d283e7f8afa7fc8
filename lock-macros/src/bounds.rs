//! How much is read: what is deeper or longer would end in a crash of the compiler.

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::{Error, Result};

/// How deep brackets may stand in each other.
const MAX_DEPTH: usize = 64;
/// How many tokens an attribute may have. What stands in no brackets nests too, as `!!!x` does: its reader takes up to
/// 8 KB of stack for each, and the compiler has 8 MB.
const MAX_TOKENS: usize = 600;

/// Refuses arguments that could not be read without a crash. `what` takes them.
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

/// Refuses a signature that could not be read without a crash.
pub(crate) fn check_signature(tokens: TokenStream) -> Result<()> {
    check(tokens, MAX_DEPTH, &mut { usize::MAX }).map_err(|(at, _)| {
        let sentence = "brackets are nested more than {} deep in the signature of this function; give its types names";
        Error::new(at, sentence.replace("{}", &MAX_DEPTH.to_string()))
    })
}

/// What there is too much of.
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
