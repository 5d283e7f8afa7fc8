//! What a program sends in its own transaction, as text and values for any driver.

use lock_core::{FencingToken, JobVersion, LockGuard};

/// A statement for the user's transaction: a text, and its two values.
///
/// See the example of [`pin`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    text: String,
    key: String,
    token: i64,
    function: &'static str,
}

/// Keeps a lock for the transaction in which the statement runs: until it commits or rolls back nobody else is granted the lock, even
/// if its lease ends, this process dies, or the guard is released meanwhile.
///
/// Send it first, right after `BEGIN`; what is read after it, nobody changes before the commit who pins too. A lock that was
/// lost is an error of the database: SQLSTATE `LK001`, `LK002` where a later holder has pinned it, and `40001` if it changed hands
/// after the transaction's snapshot. Then roll back. Outside of a transaction it is refused with `LK004`.
///
/// Transactions under one lock follow each other. [`Statement::values`] are a `text` and a `bigint`, whatever the driver:
///
/// ```no_run
/// # async fn write(locks: lock_core::LockManager, mut db: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let guard = locks.lock("account:7").await?;
/// let transaction = db.transaction().await?;
/// let pin = lock_postgres::pin(&guard);
/// transaction.execute(pin.text(), &[&pin.key(), &pin.token()]).await?;
/// transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 7", &[]).await?;
/// transaction.commit().await?; // as long as this is open, nobody else has the lock
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn pin(guard: &LockGuard) -> Statement {
    Statement::new("pin", guard.key().as_str(), guard.token())
}

/// Lets the writes of a transaction through if no newer token was seen of this resource, for a lock of any store: of Redis too.
///
/// Unlike [`pin`] it keeps nobody from being granted the lock; it refuses the writes of whoever had it before. SQLSTATE `LK002` if the
/// token is stale: roll back.
///
/// ```
/// use lock_core::FencingToken;
///
/// let admit = lock_postgres::admit("account:7", FencingToken::new(1 << 50));
/// assert_eq!(admit.text(), "SELECT lock_core.admit($1::text, $2::bigint)");
/// assert_eq!(admit.values(), ("account:7", 1 << 50));
/// ```
#[must_use]
pub fn admit(resource: &str, token: FencingToken) -> Statement {
    Statement::new("admit", resource, token)
}

/// Marks that the work under a lock is done for a version, in the transaction that does the work, and [pins](pin) the lock for it: work and
/// mark are committed together, or neither is. With [`once_for`](lock_core::LockRequest::once_for) around it the work is done exactly once.
///
/// Send it first, right after `BEGIN`. SQLSTATE `LK005` says that it is done already, and the others are those of [`pin`]: roll back.
///
/// ```no_run
/// # use lock_core::JobVersion;
/// # async fn migrate(locks: lock_core::LockManager, mut db: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let version = JobVersion::new("v42")?;
/// locks.lock("migrate:orders").once_for("v42").run(async |guard| {
///     let transaction = db.transaction().await?;
///     let mark = lock_postgres::mark_done(guard, &version);
///     transaction.execute(mark.text(), &[&mark.key(), &mark.token(), &mark.version()]).await?;
///     transaction.execute("UPDATE orders SET total = total * 100", &[]).await?;
///     transaction.commit().await?; // a crash before this has done nothing, and after it everything
///     Ok::<_, Box<dyn std::error::Error>>(())
/// }).await?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn mark_done(guard: &LockGuard, version: &JobVersion) -> MarkStatement {
    let (key, token) = (guard.key().as_str().to_owned(), signed(guard.token()));
    MarkStatement { text: String::new(), key, token, version: version.as_str().to_owned() }.in_schema("lock_core")
}

/// A statement for the user's transaction that marks work as done: a text, and its three values.
///
/// See the example of [`mark_done`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkStatement {
    text: String,
    key: String,
    token: i64,
    version: String,
}

impl MarkStatement {
    /// Names the schema of the lock store, if the URL does: `?schema=`.
    #[must_use]
    pub fn in_schema(mut self, schema: &str) -> Self {
        self.text = format!("SELECT {schema}.mark_done($1::text, $2::bigint, $3::text)");
        self
    }

    /// Returns the statement, with `$1`, `$2` and `$3` for its values.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the first value: the key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the second value: the token, as a `bigint`.
    #[must_use]
    pub fn token(&self) -> i64 {
        self.token
    }

    /// Returns the third value: the version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

impl Statement {
    fn new(function: &'static str, key: &str, token: FencingToken) -> Self {
        let statement = Self { text: String::new(), key: key.to_owned(), token: signed(token), function };
        statement.in_schema("lock_core")
    }

    /// Names the schema of the lock store, if the URL does: `?schema=`.
    #[must_use]
    pub fn in_schema(mut self, schema: &str) -> Self {
        self.text = format!("SELECT {schema}.{}($1::text, $2::bigint)", self.function);
        self
    }

    /// Returns the statement, with `$1` and `$2` for its values.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the first value: the key, or the resource.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the second value: the token, as a `bigint`.
    #[must_use]
    pub fn token(&self) -> i64 {
        self.token
    }

    /// Returns both values.
    #[must_use]
    pub fn values(&self) -> (&str, i64) {
        (&self.key, self.token)
    }
}

/// A token as the database has it.
pub(crate) fn signed(token: FencingToken) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

/// A token of the database.
pub(crate) fn unsigned(token: i64) -> FencingToken {
    FencingToken::new(u64::try_from(token).unwrap_or_default())
}
