//! The main forms, as users would write them. The expected text is in `snapshots/`.

use quote::quote;

use super::expand;

fn pretty(arguments: proc_macro2::TokenStream, item: proc_macro2::TokenStream) -> String {
    let expanded = expand(arguments, item);
    prettyplease::unparse(&syn::parse2(expanded).expect("the expansion is Rust"))
}

/// Compares the expansion with a file, or writes the file if `UPDATE_SNAPSHOTS` is set.
fn snapshot(name: &str, arguments: proc_macro2::TokenStream, item: proc_macro2::TokenStream) {
    let text = pretty(arguments, item);
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/expand/snapshots").join(name);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{name} changed; look at it and run again with UPDATE_SNAPSHOTS=1:\n{text}");
}

#[test]
fn asynchronous() {
    snapshot(
        "asynchronous.txt",
        quote!(key = "lock:user:<user_id>", ttl = "10s"),
        quote! {
            /// Charges.
            pub async fn charge(user_id: u64, amount: Money) -> Result<Receipt, ChargeError> {
                bank.charge(user_id, amount).await
            }
        },
    );
}

#[test]
fn asynchronous_with_everything() {
    snapshot(
        "everything.txt",
        quote! {
            keys = ["a:<self.id>", "b:<other:04>"], ttl = "1m30s", wait = LIMIT, on_busy = "skip",
            on_error = |error| give_up(error), on_lost = "error", renew = "20s", max_hold = "1h", min_hold = "1s",
            reentrant, durability = "acks=1", client = self.locks, guard = lock, label = "both", stuck_after = "5m", docs = false,
            crate = vendor::locks,
        },
        quote! {
            async fn both(&self, other: u32) -> Result<(), Error> {
                lock.ensure_held()?;
                Ok(())
            }
        },
    );
}

#[test]
fn maybe_locked() {
    snapshot(
        "maybe.txt",
        quote!(key = "k", when = amount > 100, on_error = "run_unlocked", docs = false),
        quote!(
            async fn large(amount: u32) -> Result<(), Error> {}
        ),
    );
}

#[test]
fn synchronous() {
    snapshot(
        "synchronous.txt",
        quote!(key = "k:<id>", wait = "none", map_err = Error::lock, docs = false),
        quote!(
            fn write(&mut self, id: u64) -> Result<&mut File, Error> {
                self.open(id)
            }
        ),
    );
}

#[test]
fn boxed_future() {
    snapshot(
        "boxed_future.txt",
        quote!(key = "k", guard = lock, docs = false),
        quote! {
            fn ship<'a>(&'a self) -> Pin<Box<dyn Future<Output = Result<u8, Error>> + Send + 'a>> {
                Box::pin(async move { Ok(1) })
            }
        },
    );
}

#[test]
fn mistakes_keep_the_item() {
    let text = expand(quote!(tll = "1s"), quote!(fn f() { half typed; x. })).to_string();
    assert!(text.contains("compile_error") && text.contains("half typed"), "{text}");
}
