use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use lock_testing::limit;

use super::{Credentials, Provider};

#[tokio::test]
#[limit]
async fn all_who_share_a_provider_learn_of_new_credentials() {
    let asked = AtomicU64::new(0);
    let provider = Provider::new(move || {
        let number = asked.fetch_add(1, Ordering::Relaxed) + 1;
        let credentials = Credentials::new(format!("pw-{number}")).valid_for(Duration::from_secs(3600));
        std::future::ready(Ok(credentials))
    });
    assert!(is_pending(pin!(provider.after(0))).await, "nobody has logged in");
    let first = provider.current().await.unwrap().1;
    assert_eq!(provider.after(0).await, Ok((1, first.clone())));
    assert!(is_pending(pin!(provider.after(1))).await, "they last");
    // A connection was refused, and asks for other credentials.
    provider.forget(&first);
    assert!(is_pending(pin!(provider.after(1))).await, "there are no others yet");
    let second = provider.current().await.unwrap().1;
    for _server in 0..2 {
        assert_eq!(provider.after(1).await, Ok((2, second.clone())));
    }
    assert!(is_pending(pin!(provider.after(2))).await);
}

/// Polls a future once.
async fn is_pending<T>(mut future: Pin<&mut impl Future<Output = T>>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}
