// Advisory locks of PostgreSQL by pgx, in the two usual ways. `session` locks in one statement and unlocks in another.
// `transaction` keeps a transaction open while it holds the lock. With a pooler in transaction mode, the documentation
// of both allows only the second way.
package main

import (
	"context"
	"errors"
	"os"
	"time"

	"example.org/peers/lines"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const id = "(hashtextextended($1, 0))"

type lock struct {
	pool    *pgxpool.Pool
	session bool
	conn    *pgxpool.Conn
	key     string
}

func (l *lock) Acquire(key string, wait time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if l.conn, err = l.pool.Acquire(ctx); err != nil {
		return err
	}
	l.key = key
	if l.session {
		_, err = l.conn.Exec(ctx, "SELECT pg_advisory_lock"+id, key)
	} else if _, err = l.conn.Exec(ctx, "BEGIN"); err == nil {
		_, err = l.conn.Exec(ctx, "SELECT pg_advisory_xact_lock"+id, key)
	}
	if err != nil {
		l.conn.Release()
	}
	return err
}

// Held asks whether the connection is still there. The lock ends with it.
func (l *lock) Held() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return l.conn.Ping(ctx) == nil
}

func (l *lock) Release() (err error) {
	// The pool closes a connection that is broken or still in a transaction.
	defer l.conn.Release()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if !l.session {
		_, err = l.conn.Exec(ctx, "COMMIT")
		return err
	}
	var was bool
	if err = l.conn.QueryRow(ctx, "SELECT pg_advisory_unlock"+id, l.key).Scan(&was); err == nil && !was {
		err = errors.New("this session does not hold it")
	}
	return err
}

func main() {
	config, err := pgxpool.ParseConfig(lines.URL())
	if err != nil {
		panic(err)
	}
	// A pooler does not support prepared statements.
	config.ConnConfig.DefaultQueryExecMode, config.MaxConns = pgx.QueryExecModeSimpleProtocol, 64
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		panic(err)
	}
	name := os.Args[1]
	lines.Serve("advisory lock of a "+name+" by pgx v5.12.0", func() lines.Lock { return &lock{pool: pool, session: name == "session"} })
}
