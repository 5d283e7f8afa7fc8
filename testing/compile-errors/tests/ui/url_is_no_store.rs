use lock_core::LockManager;

fn main() {
    let _ = LockManager::builder("redis://127.0.0.1:6379").build();
}
