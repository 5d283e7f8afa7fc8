//! The texts above and below the options in the help.

/// The first lines of the help: an engineer on call needs them before anything else.
pub(super) const INCIDENT: &str = "\
In an incident, with LOCK_URL or --url as in the service:
  lockctl list      every lock that is held: first without an expiry, then most waiters, then the oldest
  lockctl why KEY   who holds it, is that process alive, who waits; is it safe to take away, and how
  lockctl doctor    if no lock can be taken: which server, why, and what to set";

pub(super) const MORE: &str = "\
Examples:
  lockctl why lock:user:42 --live-view 'http://{host}:9464'
  lockctl release lock:user:42 --expect-owner 5f0e… --reason 'host web-3 is gone, INC-512'
  lockctl jobs --prefix cron:
  lockctl run lock:backup --ttl 30s -- ./backup.sh --full
  lockctl acquire deploy:prod --holder ci-4711 --ttl 30m --reason 'release 42' && lockctl release deploy:prod --holder ci-4711
  lockctl --url redlock://10.0.0.1,10.0.0.2,10.0.0.3 sync lock:user:42
  lockctl --url postgres://app@db-1,db-2/shop doctor
  lockctl --url redis+sentinel://10.0.0.1,10.0.0.2/mymaster topology
  LOCK_URL=redis://:password@redis.internal lockctl watch --json

Exit codes:
  0   done
  1   the lock is free, or not held by the owner that was named
  2   the command line or the URL is wrong
  3   the store cannot be reached, or did not answer
  4   the store refuses: user or password, a permission, a key of another type than a lock; or its
      certificate is not trusted; or `dashboards` would overwrite a changed file
  75  `acquire`: the lock stayed taken
`run` and `doctor` have their own codes, see `lockctl run --help` and `lockctl doctor --help`.

PostgreSQL: the commands are the same, except `topology`. A command that only reads does not make the tables.
`doctor` examines both: settings, permissions, and what a proxy or a managed service takes away.

Clusters: the URL of any node stands for all masters, at the addresses that the cluster announces, with the
same user, password and TLS settings. Replicas are never read.

Quorums: every member is asked at once. A lock is held if a majority has it. Members that do not answer are
named. If their answers would decide, a lock is shown as `unknown`, with exit code 3. A quorum does not keep a
queue: only the live view of a waiter's own process knows it, which `why --live-view` reads.

Namespaces: with `?key_prefix=prod:` in the URL, or LOCK_KEY_PREFIX=prod:, only keys of that namespace are
shown, and you may leave the prefix out of keys.

Owners: 32 hexadecimal digits name one grant, and prove ownership of it: with them a lock can be
released. Lists show the first four digits, enough to tell holders apart and safe to paste into a chat. `show`
and `list --owners` show all digits, for `release --expect-owner`. Passwords are never printed.";

pub(super) const LEASES: &str = "\
Examples:
  token=$(lockctl acquire deploy:prod --holder \"$USER@ci-4711\" --ttl 30m --json | jq -r .token)
  lockctl renew   deploy:prod --holder \"$USER@ci-4711\" --ttl 30m
  lockctl show    deploy:prod
  lockctl release deploy:prod --holder \"$USER@ci-4711\"";

pub(super) const RUN: &str = "\
Exit codes:
  the command's code, or 128 + n if signal n ended it; and
  75  busy: the lock stayed taken, and the command was not run
  0   also: it was done before (--once-for), or the lock was taken (--on-busy skip); the command was not run
  76  lost: the lock was lost while the command ran, and the command was stopped
  69  the store could not be reached, or refused; the command was not run, or has ended well and may not be
      marked as done (--once-for)
  126, 127  the command cannot be executed, or does not exist
  2   the command line is wrong

Environment of the command:
  LOCK_KEY       the key
  LOCK_TOKEN     the fencing token of this grant: send it along with every write
  LOCK_DEADLINE  when the lease ends unless lockctl renews it again, in ms since 1970

  LOCK_URL is removed, because it may hold a password. --pass-url keeps it, for a command that calls lockctl or
  a service that reads LOCK_URL.

The command gets its own process group, and the terminal if lockctl has it: Ctrl-C and Ctrl-Z work as
without lockctl. In a pipeline it gets the terminal when it first reads from it.

Signals: HUP, INT, QUIT, TERM, USR1 and USR2 reach the command, also while it is stopped. From the first HUP,
INT, QUIT or TERM on, it has --grace to end. Then its whole group gets KILL. TSTP stops the command and CONT
continues it. If lockctl was started to ignore a signal, as by nohup, both ignore it (on Linux).

If the lock is lost, or the command has ended and left processes behind, the group gets TERM, and KILL
after --grace. Only then is the lock released. If lockctl itself is killed, the group is killed with it. If
lockctl is stopped for longer than the lease, for example by Ctrl-Z, the group is ended when the lease ends.

Examples:
  lockctl run cron:report --on-busy skip --min-hold 50s -- ./report.sh    on each host at the same minute: one runs it
  lockctl run migrate:orders --once-for 0042 --wait 10m -- ./migrate up   in each start of the service: one runs it, once;
                                                                          0042 is the newest migration, not a release
  lockctl run migrate --wait forever -- sh -c 'migrate up && migrate check'";
