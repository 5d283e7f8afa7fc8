//! Responses of a web service whose lock is refused.

use std::time::Duration;

use crate::types::error::{LockError, LockErrorKind};

impl LockError {
    /// Returns whether another caller has the lock. The client may retry, and the service is healthy.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        matches!(self.kind(), LockErrorKind::Busy | LockErrorKind::Timeout)
    }

    /// Returns the fitting HTTP status: 409 if the lock is taken, 503 if it cannot be taken or kept now, 500 for a
    /// mistake in the program.
    ///
    /// ```
    /// # use lock_core::{LockError, LockManager};
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let locks = LockManager::in_memory();
    /// let _guard = locks.lock("cart:7").await?;
    /// let error = locks.lock("cart:7").without_waiting().await.unwrap_err();
    /// assert_eq!((error.http_status(), error.is_contended()), (409, true));
    /// # Ok::<(), LockError>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn http_status(&self) -> u16 {
        self.answer().status
    }

    /// Returns when the client may retry, for a `Retry-After` header.
    ///
    /// `None` if a retry does not help, and for a lost lock: the request may be partly done, so only its sender knows
    /// whether it may be repeated.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.answer().retry_after_seconds.map(Duration::from_secs)
    }

    /// Returns a body of the type `application/problem+json` (RFC 9457).
    ///
    /// It contains neither the key nor the holder. The error's own text has them, for the log.
    #[must_use]
    pub fn problem_json(&self) -> String {
        let Answer { status, title, code, detail, .. } = self.answer();
        // The texts are constants without a character that JSON would escape.
        format!(r#"{{"type":"about:blank","title":"{title}","status":{status},"detail":"{detail}","code":"{code}"}}"#)
    }

    fn answer(&self) -> Answer {
        let conflict = Answer { status: 409, title: "Conflict", ..UNAVAILABLE };
        match self.kind() {
            LockErrorKind::Busy | LockErrorKind::Timeout => Answer {
                code: "locked",
                detail: "another request is working on this; try again in a moment",
                retry_after_seconds: Some(1),
                ..conflict
            },
            LockErrorKind::Unavailable => UNAVAILABLE,
            LockErrorKind::ShutDown => Answer {
                code: "stopping",
                detail: "this instance is about to stop; try again",
                retry_after_seconds: Some(1),
                ..UNAVAILABLE
            },
            LockErrorKind::Lost => Answer {
                code: "lock_lost",
                detail: "the request lost its lock and was stopped, perhaps half-way; check its effect before you repeat it",
                retry_after_seconds: None,
                ..UNAVAILABLE
            },
            LockErrorKind::WouldDeadlock
            | LockErrorKind::InvalidKey
            | LockErrorKind::Misconfigured
            | LockErrorKind::NotInstalled => Answer {
                status: 500,
                title: "Internal Server Error",
                code: "internal",
                detail: "the request cannot be served; the log of the service says why",
                retry_after_seconds: None,
            },
        }
    }
}

/// The texts for one kind of failure.
struct Answer {
    status: u16,
    /// The HTTP name of the status, as RFC 9457 requires with `about:blank`.
    title: &'static str,
    /// For programs.
    code: &'static str,
    /// For people.
    detail: &'static str,
    retry_after_seconds: Option<u64>,
}

const UNAVAILABLE: Answer = Answer {
    status: 503,
    title: "Service Unavailable",
    code: "unavailable",
    detail: "locks cannot be taken at the moment; try again later",
    retry_after_seconds: Some(5),
};

/// Makes the response to a request that did not get its lock, with the error attached.
#[cfg(feature = "http")]
pub fn refusal<B: From<String>>(error: LockError) -> http::Response<B> {
    use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};

    let answer = error.answer();
    if answer.status == 409 {
        tracing::debug!(target: "lock_core::api::web", %error, "request refused");
    } else {
        tracing::warn!(target: "lock_core::api::web", %error, status = answer.status, "request failed");
    }
    let mut response = http::Response::new(B::from(error.problem_json()));
    *response.status_mut() = http::StatusCode::from_u16(answer.status).unwrap_or(http::StatusCode::SERVICE_UNAVAILABLE);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(seconds) = answer.retry_after_seconds {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    response.extensions_mut().insert(error);
    response
}

/// Answers 409 or 503 with `Retry-After`, or 500, and a body of the type `application/problem+json`.
///
/// Each refusal is a `tracing` event with the error's text (target `lock_core::api::web`). A taken lock is logged at
/// `DEBUG`, any other error at `WARN`. The error is also among the response's extensions, for a layer that logs. The
/// client sees neither keys nor holders.
#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for LockError {
    fn into_response(self) -> axum_core::response::Response {
        refusal(self)
    }
}
