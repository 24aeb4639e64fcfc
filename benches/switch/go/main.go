// The Go rival of benches/switch: the same command line, workloads and output as its other children.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

const crowd = 1000

func main() {
	flag.String("child", "go", "always go")
	workload := flag.String("workloads", "", "one workload")
	procs := flag.Int("procs", 1, "GOMAXPROCS")
	millis := flag.Int("millis", 100, "least length of the measured run")
	flag.Parse()
	runtime.GOMAXPROCS(*procs)
	run := map[string]func(int){
		"yield-1":     yields,
		"yield-1000":  crowdedYields,
		"spawn-join":  spawns, // No join handles in Go: a wait group.
		"spawn-group": spawns,
		"ping-pong":   pingPong,
		"mutex":       mutex,
	}[*workload]
	if run == nil {
		fmt.Fprintln(os.Stderr, "no such workload:", *workload)
		os.Exit(1)
	}
	fmt.Println(measure(time.Duration(*millis)*time.Millisecond, run), 0)
}

// As measure in src/workload.rs.
func measure(atLeast time.Duration, run func(int)) float64 {
	for ops := crowd; ; {
		start := time.Now()
		run(ops)
		took := time.Since(start)
		if took >= atLeast {
			return float64(took.Nanoseconds()) / float64(ops)
		}
		shortBy := min(max(1.2*atLeast.Seconds()/max(took.Seconds(), 1e-9), 1.5), 10)
		ops = (int(float64(ops)*shortBy) + crowd - 1) / crowd * crowd
	}
}

func yields(n int) {
	for range n {
		runtime.Gosched()
	}
}

func crowdedYields(n int) {
	var group sync.WaitGroup
	for range crowd {
		group.Go(func() { yields(n / crowd) })
	}
	group.Wait()
}

func spawns(n int) {
	var group sync.WaitGroup
	for range n / crowd {
		group.Add(crowd)
		for range crowd {
			go group.Done()
		}
		group.Wait()
	}
}

func pingPong(n int) {
	ping, pong := make(chan int), make(chan int)
	go func() {
		for i := range ping {
			pong <- i
		}
		close(pong)
	}()
	for i := range n {
		ping <- i
		<-pong
	}
	close(ping)
	<-pong
}

var locked struct {
	sync.Mutex
	count int
}

func mutex(n int) {
	for range n {
		locked.Lock()
		locked.count++
		locked.Unlock()
	}
}
