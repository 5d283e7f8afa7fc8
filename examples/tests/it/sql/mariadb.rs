//! MariaDB, with statements that MySQL understands too.

use lock_testing::limit;
use std::process::{Child, Command, Stdio};

use crate::program::eventually;
use crate::sql::session::Session;
use crate::sql::{folder, program, statements, take, unprivileged};

struct Mariadb {
    folder: tempfile::TempDir,
    server: Child,
}

impl Mariadb {
    fn start() -> Self {
        let folder = folder();
        let data = format!("--datadir={}", folder.path().join("data").display());
        let made = unprivileged(&program(&["mariadb-install-db"]), folder.path())
            .args(["--no-defaults", &data, "--auth-root-authentication-method=normal", "--skip-test-db"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let server = unprivileged(&program(&["mariadbd"]), folder.path())
            .args(["--no-defaults", &data, "--skip-networking", "--innodb-flush-log-at-trx-commit=0"])
            .arg(format!("--socket={}", folder.path().join("s").display()))
            .arg(format!("--pid-file={}", folder.path().join("pid").display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mariadb = Self { folder, server };
        eventually("the server answers", || {
            mariadb.client().args(["-e", "SELECT 1"]).output().unwrap().status.success().then_some(())
        });
        mariadb.client().args(["-e", "CREATE DATABASE test"]).status().unwrap();
        mariadb
    }

    fn client(&self) -> Command {
        let mut client = Command::new(program(&["mariadb"]));
        client.args(["--no-defaults", "--batch", "--skip-column-names", "--unbuffered", "-u", "root"]);
        client.arg(format!("--socket={}", self.folder.path().join("s").display()));
        client
    }

    fn session(&self, prepared: &str) -> Session {
        let mut session = Session::open(self.client().arg("test"));
        session.run(prepared);
        session
    }
}

impl Drop for Mariadb {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A server with the tables of the page, its statements, and how a transaction begins and ends.
fn prepared() -> (Mariadb, String, [String; 2]) {
    let mut page = statements("mysql");
    let mariadb = Mariadb::start();
    let schema = [take(&mut page, "schema"), take(&mut page, "fence schema")].join("\n");
    mariadb.session(&schema).run("INSERT INTO account (id, balance) VALUES (7, 0);");
    let prepare =
        |name: &str, statement: &str| format!("PREPARE {name} FROM \"{}\";\n", statement.trim_end_matches(';'));
    let prepared = [
        prepare("charge", &take(&mut page, "compute in one row")),
        prepare("stamp", &take(&mut page, "stamp one row")),
        prepare("look", &take(&mut page, "read one row")),
        prepare("one_row", &take(&mut page, "write one row")),
        prepare("fence", &take(&mut page, "fence")),
        prepare("admits", &take(&mut page, "fence admits")),
    ]
    .concat();
    let ends = [take(&mut page, "begin"), take(&mut page, "commit")];
    assert!(page.is_empty(), "statements that nothing runs: {page:?}");
    (mariadb, prepared, ends)
}

fn fence(token: i64) -> String {
    format!(
        "SET @name = 'account:7', @token = {token}; EXECUTE fence USING @name, @token; EXECUTE admits USING @token, @name;"
    )
}

#[test]
#[limit(180)]
fn a_holder_that_freezes_in_mid_transaction_blocks_nobody_in_mariadb() {
    let (mariadb, prepared, [begin, commit]) = prepared();
    let (mut one, mut two) = (mariadb.session(&prepared), mariadb.session(&prepared));
    assert_eq!(one.run(&format!("{begin} {}", fence(10))), ["1"]);
    one.freeze();
    eventually("the successor is admitted", || {
        // An error ends the client: a lock wait time-out, should the machine stand still.
        let mut two = mariadb.session(&prepared);
        two.send(&format!("{begin} {} {commit}", fence(20)));
        two.answers_unless_ended().is_some_and(|answers| answers == ["1"]).then_some(())
    });
    assert_eq!(two.run(&format!("{begin} {} ROLLBACK;", fence(10))), ["0"], "the older one");
}

#[test]
#[limit(180)]
fn mariadb_refuses_whoever_is_not_the_newest_holder() {
    let (mariadb, prepared, _) = prepared();
    let open = || mariadb.session(&prepared);
    let (mut one, mut two) = (open(), open());

    let write = |token: i64, balance: i64| {
        format!(
            "SET @id = 7, @token = {token}, @balance = {balance}; EXECUTE one_row USING @balance, @id, @token; SELECT ROW_COUNT();"
        )
    };
    let stamp = |token: i64| {
        format!(
            "SET @id = 7, @token = {token}; EXECUTE stamp USING @token, @id, @token; EXECUTE look USING @id, @token;"
        )
    };
    let charge = |token: i64| {
        format!(
            "SET @id = 7, @token = {token}, @amount = 10; EXECUTE charge USING @amount, @token, @id, @token; SELECT ROW_COUNT();"
        )
    };
    assert_eq!(one.run(&write(20, 999)), ["0"], "without a stamp");
    assert_eq!(one.run(&stamp(20)), ["0"], "the balance");
    assert_eq!(one.run(&stamp(20)), ["0"], "the same holder again");
    assert_eq!(one.run(&write(20, 100)), ["1"]);
    assert_eq!(one.run(&write(20, 110)), ["1"], "the same holder again");
    assert_eq!(one.run(&write(20, 110)), ["0"], "rows that changed, as the page says");
    let nothing: [&str; 0] = [];
    assert_eq!(two.run(&stamp(10)), nothing, "an older one");
    assert_eq!(two.run(&write(10, 999)), ["0"], "an older one");
    assert_eq!(two.run(&charge(10)), ["0"], "an older one");
    assert_eq!(two.run(&charge(20)), ["1"]);
    assert_eq!(two.run(&stamp(i64::MAX)), ["100"]);
    assert_eq!(one.run(&write(20, 999)), ["0"], "another has stamped");
    assert_eq!(two.run(&write(i64::MAX, 120)), ["1"]);
    assert_eq!(one.run("SELECT balance, fence FROM account;"), [format!("120\t{}", i64::MAX)]);

    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let begin = format!("SET TRANSACTION ISOLATION LEVEL {level}; BEGIN; SELECT COUNT(*) FROM account;");
        one.run("DELETE FROM fence;");
        // The newer holder comes first: the older one waits for its commit, and is refused.
        assert_eq!(one.run(&format!("BEGIN; {}", fence(20))), ["1"]);
        two.run(&begin);
        two.send(&fence(10));
        waits(&mariadb);
        one.run("COMMIT;");
        assert_eq!(two.answers(), ["0"], "{level}");
        two.run("ROLLBACK;");
        // The older holder comes first, and is in the middle of its write: the newer one waits, and
        // then goes on.
        assert_eq!(one.run(&format!("BEGIN; {}", fence(30))), ["1"], "{level}");
        two.run(&begin);
        two.send(&fence(40));
        waits(&mariadb);
        one.run("COMMIT;");
        assert_eq!(two.answers(), ["1"], "{level}");
        two.run("COMMIT;");
        assert_eq!(one.run(&format!("BEGIN; {} ROLLBACK;", fence(30))), ["0"], "{level}");
    }
}

/// Waits until a transaction waits for another.
fn waits(mariadb: &Mariadb) {
    let count = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
    let waiting = || mariadb.client().args(["-e", count]).output().unwrap().stdout;
    eventually("one transaction waits for the other", || waiting().starts_with(b"1").then_some(()));
}
