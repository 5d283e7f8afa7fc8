// redislock, as its documentation shows it: it polls for the lock, and asks the server for the rest of its lease.
package main

import (
	"context"
	"time"

	"example.org/peers/lines"
	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

type lock struct {
	client *redislock.Client
	held   *redislock.Lock
}

func (l *lock) Acquire(key string, wait time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	retry := redislock.LinearBackoff(20 * time.Millisecond)
	l.held, err = l.client.Obtain(ctx, key, lines.TTL(), &redislock.Options{RetryStrategy: retry})
	return err
}

func (l *lock) Held() bool {
	left, err := l.held.TTL(context.Background())
	return err == nil && left > 0
}

func (l *lock) Release() error { return l.held.Release(context.Background()) }

func main() {
	options, err := redis.ParseURL(lines.URL())
	if err != nil {
		panic(err)
	}
	client := redislock.New(redis.NewClient(options))
	lines.Serve("redislock v0.9.4", func() lines.Lock { return &lock{client: client} })
}
