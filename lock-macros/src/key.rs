//! `lock_key!`: a template outside the attribute.

use proc_macro2::TokenStream;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, LitStr, Path, Result, Token};

use crate::args::{default_crate, string};
use crate::template::Template;

/// Expands `lock_key!("lock:user:<user_id>")`, with `crate = path,` before it or not.
pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    let (krate, literal) = arguments.parse2(input)?;
    Ok(Template::parse(literal)?.render(&krate))
}

fn arguments(input: ParseStream<'_>) -> Result<(Path, LitStr)> {
    let krate = if input.peek(Token![crate]) {
        input.parse::<Token![crate]>()?;
        input.parse::<Token![=]>()?;
        let path = input.call(Path::parse_mod_style)?;
        input.parse::<Token![,]>()?;
        path
    } else {
        default_crate()
    };
    let literal = string(input.parse::<Expr>()?)?;
    input.parse::<Option<Token![,]>>()?;
    if !input.is_empty() {
        return Err(
            input.error("lock_key! takes one template; values go between its angle brackets, as in \"user:<user_id>\"")
        );
    }
    Ok((krate, literal))
}
