//! The statements that a program sends in its own transaction, as text and values for any driver.

use lock_core::{FencingToken, LockGuard};
use lock_store::JobVersion;

/// A statement for the user's transaction: a text, and its values, which are a key, a token and, of [`mark_done`], a version.
///
/// See the example of [`pin`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<V = ()> {
    text: String,
    key: String,
    token: i64,
    third: V,
    /// The function, and its parameters.
    calls: (&'static str, &'static str),
}

const TWO: &str = "$1::text, $2::bigint";
const THREE: &str = "$1::text, $2::bigint, $3::text";

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
    Statement::new(("pin", TWO), guard.key().as_str(), guard.token(), ())
}

/// Lets the writes of a transaction through if no newer token was seen of this resource, for a lock of any store: of Redis too.
///
/// Unlike [`pin`], it does not delay the next grant of the lock. It refuses the writes of earlier holders. SQLSTATE `LK002` if the
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
    Statement::new(("admit", TWO), resource, token, ())
}

/// Marks that the work under a lock is done for a version, in the transaction that does the work, and [pins](pin) the lock for it: work and
/// mark are committed together, or neither is. With [`once_for`](lock_core::LockRequest::once_for) around it the work is done exactly once.
///
/// Send it first, right after `BEGIN`. SQLSTATE `LK005` says that it is done already, and the others are those of [`pin`]: roll back.
///
/// ```no_run
/// # use lock_store::JobVersion;
/// # async fn migrate(locks: lock_core::LockManager, mut db: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let version = JobVersion::new("0042")?;
/// locks.lock("migrate:orders").once_for("0042").run(async |guard| {
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
pub fn mark_done(guard: &LockGuard, version: &JobVersion) -> Statement<JobVersion> {
    Statement::new(("mark_done", THREE), guard.key().as_str(), guard.token(), version.clone())
}

impl<V> Statement<V> {
    fn new(calls: (&'static str, &'static str), key: &str, token: FencingToken, third: V) -> Self {
        let statement = Self { text: String::new(), key: key.to_owned(), token: signed(token), third, calls };
        statement.in_schema("lock_core")
    }

    /// Names the schema of the lock store, if the URL does: `?schema=`.
    #[must_use]
    pub fn in_schema(mut self, schema: &str) -> Self {
        let (function, parameters) = self.calls;
        self.text = format!("SELECT {schema}.{function}({parameters})");
        self
    }

    /// Returns the statement, with `$1`, `$2` and so on for its values.
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
}

impl Statement {
    /// Returns both values.
    #[must_use]
    pub fn values(&self) -> (&str, i64) {
        (&self.key, self.token)
    }
}

impl Statement<JobVersion> {
    /// Returns the third value: the version.
    #[must_use]
    pub fn version(&self) -> &str {
        self.third.as_str()
    }

    /// Returns the three values.
    #[must_use]
    pub fn values(&self) -> (&str, i64, &str) {
        (&self.key, self.token, self.version())
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
