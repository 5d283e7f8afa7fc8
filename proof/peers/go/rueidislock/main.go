// rueidislock over one server, as its documentation shows it: the invalidations of client-side caching wake those that wait,
// the lock is extended in the background, and its context ends when that fails. That context is how its holder knows of a loss.
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
	// A context with a deadline would end the lock with it, so what ends the wait is taken off once it is granted.
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
