// redsync over one server, as its documentation shows it: it polls for the lock, and knows until when its lock is valid.
package main

import (
	"context"
	"time"

	"example.org/peers/lines"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type lock struct {
	rs    *redsync.Redsync
	mutex *redsync.Mutex
}

func (l *lock) Acquire(key string, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	delay := redsync.WithRetryDelay(20 * time.Millisecond)
	l.mutex = l.rs.NewMutex(key, redsync.WithExpiry(lines.TTL()), redsync.WithTries(1_000_000), delay)
	return l.mutex.LockContext(ctx)
}

func (l *lock) Held() bool     { return time.Now().Before(l.mutex.Until()) }
func (l *lock) Release() error { _, err := l.mutex.Unlock(); return err }

func main() {
	options, err := redis.ParseURL(lines.URL())
	if err != nil {
		panic(err)
	}
	rs := redsync.New(goredis.NewPool(redis.NewClient(options)))
	lines.Serve("redsync v4.18.1", func() lines.Lock { return &lock{rs: rs} })
}
