//! Pages of the repository in the documentation of `lock-core`.

use std::path::PathBuf;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, LitStr, Result, parse2};

/// Expands to the text of a page in the folder `docs` of the crate that is compiled.
pub(crate) fn expand(name: TokenStream) -> Result<TokenStream> {
    let name: LitStr = parse2(name)?;
    let folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("docs");
    let read = std::fs::read_to_string(folder.join(name.value()));
    let page = read.map_err(|error| Error::new(name.span(), format!("cannot read the page: {error}")))?;
    let page = linked(&page, |file| folder.join(file).exists());
    Ok(quote!(#page))
}

/// Makes each relative link lead to the module of the other page, or into the repository if the crate has no such page.
fn linked(page: &str, is_page: impl Fn(&str) -> bool) -> String {
    let mut parts = page.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let file = part.split(['#', ')']).next().unwrap_or_default();
        text.push_str("](");
        if file.is_empty() || file.contains("://") {
            text.push_str(part);
        } else if !file.contains('/') && is_page(file) {
            let module = file.trim_end_matches(".md").replace('-', "_");
            text.push_str(&format!("../{module}/index.html{}", &part[file.len()..]));
        } else {
            text.push_str(concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/"));
            text.push_str(part);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::{expand, linked};

    #[test]
    fn links_of_a_page_lead_to_modules_and_into_the_repository() {
        let docs = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/");
        for (link, leads_to) in [
            ("which-lock.md", "../which_lock/index.html".to_owned()),
            ("which-lock.md#a-b", "../which_lock/index.html#a-b".to_owned()),
            ("protocol.md#sleep", format!("{docs}protocol.md#sleep")),
            ("../README.md", format!("{docs}../README.md")),
            ("#here", "#here".to_owned()),
            ("https://a.example/b.md", "https://a.example/b.md".to_owned()),
        ] {
            // The package of the crate has a README, which is not a page.
            let is_page = |file: &str| ["which-lock.md", "../README.md"].contains(&file);
            let page = format!("[a]({link}), ([b]({link})) and `c`");
            assert_eq!(linked(&page, is_page), format!("[a]({leads_to}), ([b]({leads_to})) and `c`"));
        }
    }

    #[test]
    fn a_page_that_is_missing_is_named() {
        let said = expand(quote!("no-such-page.md")).unwrap_err().to_string();
        assert!(said.starts_with("cannot read the page: "), "{said}");
        assert!(expand(quote!(no_text)).is_err());
    }
}
