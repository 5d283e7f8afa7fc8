// Package lines handles the standard streams of every adapter in Go: peers/README.md.
package lines

import (
	"bufio"
	"encoding/json"
	"os"
	"strconv"
	"time"
)

// Lock is one lock at a time. Acquire has a time limit.
type Lock interface {
	Acquire(key string, wait time.Duration) error
	Held() bool
	Release() error
}

// URL and TTL are the last two arguments, from the harness.
func URL() string { return os.Args[len(os.Args)-2] }
func TTL() time.Duration {
	ms, _ := strconv.Atoi(os.Args[len(os.Args)-1])
	return time.Duration(ms) * time.Millisecond
}

// Serve answers orders until they end. The locks that create returns share their connections.
func Serve(name string, create func() Lock) {
	lock, out := create(), json.NewEncoder(os.Stdout)
	_ = out.Encode(map[string]any{"ready": name})
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		var order struct {
			Acquire string `json:"acquire"`
			WaitMs  int    `json:"wait_ms"`
			Check   bool   `json:"check"`
			Load    *load  `json:"load"`
		}
		_ = json.Unmarshal(orders.Bytes(), &order)
		var kind string
		var err error
		switch {
		case order.Load != nil:
			_ = out.Encode(order.Load.run(create))
			continue
		case order.Acquire != "":
			kind, err = "acquired", lock.Acquire(order.Acquire, time.Duration(order.WaitMs)*time.Millisecond)
		case order.Check:
			_ = out.Encode(map[string]any{"held": lock.Held()})
			continue
		default:
			kind, err = "released", lock.Release()
		}
		answer := map[string]any{kind: err == nil}
		if err != nil {
			answer["why"] = err.Error()
		}
		_ = out.Encode(answer)
	}
}
