package main

// As src/drive.rs and src/probe.rs: how it is measured.

import (
	"fmt"
	"os"
	"runtime/trace"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// As in src/workload.rs.
const crowd = 1_000

// Operations in all runs so far.
var opsAll int

// Nanoseconds per operation, and the cores that were busy.
func timed(ops int, run func(int)) (took time.Duration, ns, cores float64) {
	busy, start := cpuTime(), time.Now()
	run(ops)
	took = time.Since(start)
	opsAll += ops
	busy = cpuTime() - busy
	return took, float64(took.Nanoseconds()) / float64(ops), busy.Seconds() / took.Seconds()
}

// More and more operations, multiples of a unit, until a run is long enough that is not the first.
func measure(atLeast time.Duration, unit int, run func(int)) (took time.Duration, ns, cores float64) {
	for ops := unit; ; {
		took, ns, cores = timed(ops, run)
		if took >= atLeast && ops > unit {
			return
		}
		shortBy := min(max(1.2*atLeast.Seconds()/max(took.Seconds(), 1e-9), 1.5), 10)
		ops = (int(float64(ops)*shortBy) + unit - 1) / unit * unit
	}
}

// Until what has just been started or ended has come to rest.
const settle = 500 * time.Millisecond

// Of all threads of this process.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// What the kernel says of this process under a key, in bytes.
func statusBytes(key string) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	_, rest, _ := strings.Cut(string(status), key)
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		panic(err)
	}
	return float64(kib) * 1024
}

// Resident pages and page tables, in bytes.
func memory() (resident, tables float64) {
	return statusBytes("VmRSS:"), statusBytes("VmPTE:")
}

// The most resident memory that this process has ever had, in bytes.
func memoryAtMost() float64 {
	return statusBytes("VmHWM:")
}

func mustBe(wanted, got int) {
	if wanted != got {
		panic(fmt.Sprint("wanted ", wanted, ", got ", got))
	}
}

// Without brackets.
func printValues(values []float64) {
	text := fmt.Sprintln(values)
	fmt.Print(text[1:len(text)-2], "\n")
}

// Runs what a child is to run, traced if its name says so, and adds the bytes per operation.
func traced(child string, run func() []float64) []float64 {
	switch child {
	case "go":
		return run()
	case "go-flight":
		recorder := trace.NewFlightRecorder(trace.FlightRecorderConfig{})
		must(recorder.Start())
		values := run()
		recorder.Stop()
		return append(values, 0)
	}
	var sink counter
	must(trace.Start(&sink))
	values := run()
	trace.Stop()
	return append(values, float64(sink)/float64(opsAll))
}

// Counts what is written to it. Only the tracer's reader does.
type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
