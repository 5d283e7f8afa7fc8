//! `lock_key!`: a template outside the attribute.

use proc_macro2::TokenStream;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, LitStr, Path, Result, Token};

use crate::args::{default_crate, string};
use crate::bounds;
use crate::template::Template;

/// Expands `lock_key!("lock:user:<user_id>")`, with or without `crate = path,` before the template.
pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    bounds::check_arguments(&input, "lock_key!")?;
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

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::expand;

    #[test]
    fn what_would_crash_the_compiler_is_refused() {
        let nested = |depth: usize| (0..depth).fold(quote!("k"), |inner, _| quote!((#inner)));
        assert!(expand(quote!("k")).is_ok());
        let said = expand(nested(1_000)).unwrap_err().to_string();
        assert!(said.starts_with("brackets are nested more than 64 deep in lock_key!; put"), "{said}");
        let long: proc_macro2::TokenStream = std::iter::repeat_n(quote!(!), 5_000).collect();
        assert!(expand(long).unwrap_err().to_string().starts_with("lock_key! has more than 600 tokens"));
    }
}
