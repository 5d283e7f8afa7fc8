//! Work that is undone when the value that stands for it is dropped.

/// Calls a function when it is dropped.
#[must_use = "the function is called when this is dropped"]
pub(crate) struct OnDrop<F: FnMut()>(pub(crate) F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
