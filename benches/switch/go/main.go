// The Go rival of the suite switch: the same command line, workloads and output as its other children.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"
)

// As in src/workload.rs.
const (
	million  = 1_000_000
	buffer   = 128
	rivalry  = 8
	branches = 10
	sleepers = 100_000
	naps     = 10
	nap      = 100 * time.Millisecond
)

func main() {
	child := flag.String("child", "go", "go; go-sink: traced; go-flight: with a flight recorder")
	workload := flag.String("workloads", "", "one workload")
	procs := flag.Int("procs", 1, "GOMAXPROCS")
	flag.Bool("quick", false, "changes nothing here")
	millis := flag.Int("millis", 100, "least length of the measured run")
	flag.Parse()
	runtime.GOMAXPROCS(*procs)
	atLeast := time.Duration(*millis) * time.Millisecond
	rate := func(run func(int)) func() []float64 {
		return func() []float64 {
			_, ns, cores := measure(atLeast, crowd, run)
			return []float64{ns, cores}
		}
	}
	burst := func(run func(int)) func() []float64 {
		return func() []float64 {
			run(crowd)
			_, ns, cores := timed(million, run)
			return []float64{ns, cores}
		}
	}
	heap := func(objects int, run func(int)) func() []float64 {
		return func() []float64 {
			run(10 * crowd)
			_, ns, cores := timed(objects, run)
			return []float64{ns, memoryAtMost() / 1e6, cores}
		}
	}
	run := map[string]func() []float64{
		"yield-1":       rate(yields),
		"yield-1000":    rate(crowdedYields),
		"spawn-join":    rate(spawns), // No join handles in Go: a wait group.
		"spawn-group":   rate(spawns),
		"spawn-million": burst(spawnAll),
		"ping-pong":     rate(pingPong),
		"buffered-1x1":  rate(func(n int) { buffered(1, n) }),
		"buffered-4x4":  rate(func(n int) { buffered(4, n) }),
		"mutex":         rate(mutex),
		"mutex-8":       rate(func(n int) { contend(n, mutex) }),
		"mutex-storm":   rate(func(n int) { contend(n, heldMutex) }),
		"skynet":        burst(skynet),
		"timers":        timers,
		"memory":        func() []float64 { return parked(million) },
		"idle":          func() []float64 { return idle(10_000) },
		"cores": func() []float64 {
			_, ns, cores := measure(max(atLeast, time.Second), crowd, pingPong)
			return []float64{cores, ns}
		},
		"gc-trees":     heap(64*million, gcTrees),
		"gc-graph":     heap(16*million, gcGraph),
		"gc-pause-10m": func() []float64 { return pauses(10_000_000) },
		"gc-pause-1g":  func() []float64 { return pauses(1_000_000_000) },
	}[*workload]
	if run == nil {
		fmt.Fprintln(os.Stderr, "no such workload:", *workload)
		os.Exit(1)
	}
	printValues(traced(*child, run))
}
