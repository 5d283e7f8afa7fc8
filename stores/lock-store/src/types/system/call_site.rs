//! The place in the source where a lock is taken. Other processes see it as the holder's description.

use std::cell::Cell;
use std::collections::HashMap;
use std::panic::Location;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use foldhash::fast::RandomState;

/// The name of one call site. It is made once and shared by all locks that are taken there.
#[derive(Debug)]
pub struct CallSite {
    pub name: &'static str,
    pub shared: Arc<str>,
}

/// The call sites that were used, by the address of the constant that identifies each. They are kept for ever, but
/// their number is bounded by the size of the program.
type Registry = LazyLock<RwLock<HashMap<(usize, usize), &'static CallSite, RandomState>>>;

impl CallSite {
    /// Names the line of a call, as `crate-dir/src/file.rs:line`.
    ///
    /// The path is cut before the crate's folder, so that the layout of the build machine stays private.
    pub fn of_call(location: &'static Location<'static>) -> &'static Self {
        static CALLS: Registry = LazyLock::new(RwLock::default);
        thread_local! {
            // Most calls come from the same place as the call before.
            static LAST: Cell<Option<(usize, &'static CallSite)>> = const { Cell::new(None) };
        }
        let address = std::ptr::from_ref(location).addr();
        if let Ok(Some((known, call_site))) = LAST.try_with(Cell::get)
            && known == address
        {
            return call_site;
        }
        let name = || format!("{}:{}", public_path(location.file()), location.line()).leak() as &'static str;
        let call_site = find(&CALLS, (address, 0), name);
        let _ = LAST.try_with(|last| last.set(Some((address, call_site))));
        call_site
    }

    /// Uses the name that a call site was given.
    #[must_use]
    pub fn named(name: &'static str) -> &'static Self {
        static NAMED: Registry = LazyLock::new(RwLock::default);
        find(&NAMED, (name.as_ptr().addr(), name.len()), || name)
    }
}

fn find(known: &Registry, constant: (usize, usize), name: impl FnOnce() -> &'static str) -> &'static CallSite {
    if let Some(call_site) = known.read().unwrap_or_else(PoisonError::into_inner).get(&constant) {
        return call_site;
    }
    let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
    known.entry(constant).or_insert_with(|| {
        let name = name();
        Box::leak(Box::new(CallSite { name, shared: name.into() }))
    })
}

/// Cuts a source path down to the crate's folder and the rest of the path.
fn public_path(file: &str) -> String {
    let parts: Vec<&str> = file.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
    let root = parts.iter().rposition(|part| matches!(*part, "src" | "tests" | "examples" | "benches"));
    let from = root.unwrap_or(parts.len().saturating_sub(1)).saturating_sub(1);
    parts[from..].join("/")
}

#[cfg(test)]
mod tests {
    use std::panic::Location;
    use std::sync::Arc;

    use super::{CallSite, public_path};

    #[test]
    fn paths_of_the_build_machine_stay_private() {
        assert_eq!(public_path("/home/me/.cargo/registry/src/index/foo-1.0.0/src/lib.rs"), "foo-1.0.0/src/lib.rs");
        assert_eq!(public_path("examples/src/main.rs"), "examples/src/main.rs");
        assert_eq!(public_path("src/main.rs"), "src/main.rs");
        assert_eq!(public_path("/home/me/odd/build.rs"), "odd/build.rs");
    }

    #[test]
    fn a_place_is_named_once() {
        let here = Location::caller();
        let (first, again) = (CallSite::of_call(here), CallSite::of_call(here));
        assert!(std::ptr::eq(first, again) && first.name.ends_with(&format!("call_site.rs:{}", here.line())));
        assert!(Arc::ptr_eq(&CallSite::named("a::b").shared, &CallSite::named("a::b").shared));
        assert_eq!(&*CallSite::named("a::c").shared, "a::c");
    }
}
