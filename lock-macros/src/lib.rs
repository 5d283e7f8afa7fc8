//! The attribute of `lock-core`. Use it through that crate: `use lock_core::distributed_lock;`.
//!
//! An expansion starts at [`distributed_lock`]. `args` reads the arguments, `function` reads the annotated function,
//! `template` reads keys, and `expand` writes the result. Everything that an expansion calls is in
//! `lock_core::attribute`. Their pages are in `docs/`; lock-examples runs the programs in them.

mod args;
mod bounds;
mod duration;
mod expand;
mod expr;
mod function;
mod key;
#[cfg(feature = "test-util")]
mod limit;
mod page;
mod returned;
// The store's reader of durations. A test compares it with the attribute's own reader.
#[cfg(test)]
#[path = "../../stores/lock-store/src/types/system/text.rs"]
#[allow(dead_code, unreachable_pub, reason = "one function is compared")]
mod store;
mod suggest;
mod template;
mod text;

use proc_macro::TokenStream;

#[doc = include_str!("../docs/distributed_lock.md")]
#[doc = "\n"]
#[doc = args::table_of_options!()]
#[doc = "\n"]
#[doc = include_str!("../docs/options.md")]
#[proc_macro_attribute]
pub fn distributed_lock(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(arguments.into(), item.into()).into()
}

#[doc = include_str!("../docs/lock_key.md")]
#[proc_macro]
pub fn lock_key(input: TokenStream) -> TokenStream {
    key::expand(input.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// The text of a page for rustdoc, whose links work there. The module `guide` of `lock-core` has these pages.
#[doc(hidden)]
#[proc_macro]
pub fn page(name: TokenStream) -> TokenStream {
    page::expand(name.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Fails a test that does not end. It is documented as `lock_testing::limit`.
#[cfg(feature = "test-util")]
#[proc_macro_attribute]
pub fn limit(seconds: TokenStream, test: TokenStream) -> TokenStream {
    limit::expand(seconds.into(), test.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}
