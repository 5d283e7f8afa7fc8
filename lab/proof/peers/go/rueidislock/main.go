// rueidislock over one server, as its documentation shows it. Invalidations of client-side caching wake the waiters.
// The lock is extended in the background. If that fails, the lock's context ends, which tells the holder of the loss.
package main

import (
	"context"
	"time"

	"example.org/peers/lines"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

type lock struct {
	locker rueidislock.Locker
	held   context.Context
	cancel context.CancelFunc
}

func (l *lock) Acquire(key string, wait time.Duration) (err error) {
	// A deadline on the context would also end the lock, so the limit of the wait is removed after the grant.
	ctx, giveUp := context.WithCancel(context.Background())
	timer := time.AfterFunc(wait, giveUp)
	l.held, l.cancel, err = l.locker.WithContext(ctx, key)
	if err == nil && !timer.Stop() {
		l.cancel()
		return context.DeadlineExceeded
	}
	return err
}

func (l *lock) Held() bool     { return l.held.Err() == nil }
func (l *lock) Release() error { err := l.held.Err(); l.cancel(); return err }

func main() {
	options, err := rueidis.ParseURL(lines.URL())
	if err != nil {
		panic(err)
	}
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: options, KeyValidity: lines.TTL(), KeyMajority: 1, NoLoopTracking: true,
	})
	if err != nil {
		panic(err)
	}
	lines.Serve("rueidislock v1.0.79", func() lines.Lock { return &lock{locker: locker} })
}
