// Stands for election with client-go, as a controller in Go does. Candidates of this library stand for the same Lease, and all of
// them write into one book: ../it/client_go.rs reads it.
//
//	candidate KUBECONFIG NAMESPACE LEASE NAME BOOK
//
// It ends its work, gives the Lease back and ends when its standard input ends.
package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	leaseDuration = 3 * time.Second
	renewDeadline = 2 * time.Second
	retryPeriod   = 500 * time.Millisecond
	step          = 5 * time.Millisecond
)

// now returns the clock by which the whole book is written: it counts while the machine sleeps, as Recorder's does.
func now() time.Duration {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &at); err != nil {
		panic(err)
	}
	return time.Duration(at.Nano())
}

// lease knows until when this process may work: renewDeadline after it SENT the last update that was answered. client-go counts
// from the answer instead. A process that is stopped between the two, and goes on after its lease has ended, would work once more.
type lease struct {
	resourcelock.Interface
	until atomic.Int64
}

func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Create(ctx, record) })
}

func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Update(ctx, record) })
}

func (l *lease) write(record resourcelock.LeaderElectionRecord, send func() error) error {
	sent := now()
	// client-go gives the Lease back after a renewal that failed, while the work may still run.
	if record.HolderIdentity == "" {
		l.until.Store(0)
	}
	err := send()
	if err == nil && record.HolderIdentity != "" {
		l.until.Store(int64(sent + renewDeadline))
	}
	return err
}

func (l *lease) heldAt(at time.Duration) bool { return int64(at) < l.until.Load() }

// book appends whole lines to a file that other processes append to too.
type book struct {
	file *os.File
	name string
}

func (b book) write(line map[string]any) {
	line["who"] = b.name
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	if _, err := b.file.Write([]byte("\n" + string(text) + "\n")); err != nil {
		panic(err)
	}
}

func main() {
	kubeconfig, namespace, object, name, path := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	book := book{file, name}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		panic(err)
	}
	config.Timeout = renewDeadline / 2
	lock := &lease{Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: object},
		Client:     coordination.NewForConfigOrDie(config),
		LockConfig: resourcelock.ResourceLockConfig{Identity: name},
	}}

	ctx, cancel := context.WithCancel(context.Background())
	var resigns atomic.Bool
	var working sync.Mutex
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		resigns.Store(true)
		// The Lease is given back when ctx ends, so the work ends first.
		working.Lock()
		cancel()
	}()
	term := 0
	lead := func(ctx context.Context) {
		working.Lock()
		defer working.Unlock()
		term++
		for ctx.Err() == nil && !resigns.Load() {
			// A process that is stopped here writes a line about the time before.
			at := now()
			if lock.heldAt(at) {
				book.write(map[string]any{"kind": "step", "term": term, "at": at.Nanoseconds()})
			}
			time.Sleep(step)
		}
	}
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock:            lock,
			LeaseDuration:   leaseDuration,
			RenewDeadline:   renewDeadline,
			RetryPeriod:     retryPeriod,
			ReleaseOnCancel: true,
			Name:            name,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: lead,
				OnStoppedLeading: func() {},
				OnNewLeader: func(leader string) {
					book.write(map[string]any{"kind": "saw", "leader": leader, "at": now().Nanoseconds()})
				},
			},
		})
	}
}
