#![allow(unused)]

use lock_core::lock_key;

fn main() {
    let user_id = 1;
    let _ = lock_key!("user:<usr_id>");
    let _ = lock_key!("user:<user_id");
    let _ = lock_key!("user:<user_id>", user_id);
    let _ = lock_key!(format!("user:{user_id}"));
}
