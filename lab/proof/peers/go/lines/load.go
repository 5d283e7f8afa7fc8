package lines

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// load is the loop of a benchmark: acquire, hold and release in many tasks.
type load struct {
	Tasks       uint32 `json:"tasks"`
	First       uint32 `json:"first"`
	KeysPerTask uint64 `json:"keys_per_task"`
	HoldUs      int64  `json:"hold_us"`
	From        uint64 `json:"from"`
	To          uint64 `json:"to"`
	File        string `json:"file"`
}

// record is one acquisition, in the format of the file.
type record struct {
	Start, Enter, Exit, Token uint64
	Key, Task, Inside         uint32
}

type task struct {
	sync.Mutex
	records []record
	since   uint64
	errors  int
	why     string
}

func read(clock int32) uint64 {
	var at unix.Timespec
	_ = unix.ClockGettime(clock, &at)
	return uint64(at.Nano())
}

func now() uint64                   { return read(unix.CLOCK_MONOTONIC) }
func until(at uint64) time.Duration { return time.Duration(int64(at) - int64(now())) }

func (l *load) work(lock Lock, notes *task, index uint32) {
	for turn := uint64(0); now() < l.To; turn++ {
		key := uint64(0)
		if l.KeysPerTask > 0 {
			key = uint64(index)*l.KeysPerTask + turn%l.KeysPerTask
		}
		start := now()
		notes.Lock()
		notes.since = start
		notes.Unlock()
		err := lock.Acquire(fmt.Sprint("bench:", key), time.Hour)
		enter := now()
		if err == nil {
			notes.Lock()
			notes.since = 0
			notes.Unlock()
			if l.HoldUs > 0 {
				time.Sleep(time.Duration(l.HoldUs) * time.Microsecond)
			}
			exit := now()
			err = lock.Release()
			notes.Lock()
			notes.records = append(notes.records, record{start, enter, exit, 0, uint32(key), index, 1})
			notes.Unlock()
		}
		if err != nil {
			notes.Lock()
			notes.errors, notes.why = notes.errors+1, err.Error()
			notes.Unlock()
			time.Sleep(time.Millisecond)
		}
	}
}

// run returns unfinished waits and errors; the records are in the file.
func (l *load) run(create func() Lock) map[string]any {
	tasks := make([]*task, l.Tasks)
	for at := range tasks {
		tasks[at] = &task{}
		go l.work(create(), tasks[at], l.First+uint32(at))
	}
	time.Sleep(until(l.From))
	cpu := read(unix.CLOCK_PROCESS_CPUTIME_ID)
	time.Sleep(until(l.To))
	cpu = read(unix.CLOCK_PROCESS_CPUTIME_ID) - cpu
	open, errors, why := []uint64{}, 0, ""
	for _, each := range tasks {
		each.Lock()
		if each.since != 0 && each.since < l.To {
			open = append(open, l.To-each.since)
		}
		errors += each.errors
		if each.errors > 0 {
			why = each.why
		}
		each.Unlock()
	}
	// Holders get time to release. Waiters wait until this process is ended.
	time.Sleep(100*time.Millisecond + time.Duration(l.HoldUs)*time.Microsecond)
	file, err := os.Create(l.File)
	if err != nil {
		panic(err)
	}
	out, count := bufio.NewWriter(file), 0
	for _, each := range tasks {
		each.Lock()
		_ = binary.Write(out, binary.LittleEndian, each.records)
		count += len(each.records)
		each.Unlock()
	}
	if out.Flush() != nil || file.Close() != nil {
		panic("the records cannot be written")
	}
	return map[string]any{"loaded": count, "cpu": cpu, "open": open, "errors": errors, "why": why}
}
