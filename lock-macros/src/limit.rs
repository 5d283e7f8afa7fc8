//! The attribute that limits a test: `lock_testing::limit`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, ItemFn, LitInt, Result, parse_quote, parse2};

/// The limit of a test that names none, in seconds.
const SECONDS: u64 = 60;

/// Moves the body of a test to its own thread. `lock_testing::within` waits for that thread.
pub(crate) fn expand(seconds: TokenStream, test: TokenStream) -> Result<TokenStream> {
    let seconds = if seconds.is_empty() { SECONDS } else { parse2::<LitInt>(seconds)?.base10_parse()? };
    let mut test: ItemFn = parse2(test)?;
    if let Some(keyword) = test.sig.asyncness {
        return Err(Error::new_spanned(
            keyword,
            "`#[limit]` goes below `#[tokio::test]`, which makes this a plain function",
        ));
    }
    let (name, output, body) = (test.sig.ident.to_string(), &test.sig.output, &test.block);
    test.block = parse_quote!({
        ::lock_testing::within(
            ::core::concat!(::core::module_path!(), "::", #name),
            ::core::time::Duration::from_secs(#seconds),
            move || #output #body,
        )
    });
    Ok(quote!(#test))
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::expand;

    #[test]
    fn only_a_plain_function_can_be_limited() {
        let limited = expand(
            quote!(7),
            quote!(
                fn f() -> u8 {
                    1
                }
            ),
        )
        .unwrap()
        .to_string();
        // The spacing of tokens depends on how the crate was built.
        let dense = limited.replace(' ', "");
        assert!(dense.contains("from_secs(7u64)") && dense.contains("move||->u8{1}"), "{limited}");
        let refused = expand(
            quote!(),
            quote!(
                async fn f() {}
            ),
        )
        .unwrap_err()
        .to_string();
        assert!(refused.contains("below `#[tokio::test]`"), "{refused}");
    }
}
