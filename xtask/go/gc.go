// The garbage collector: cycles, sweeps, assists, stopped worlds, and a change of GOMAXPROCS in between.
package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/trace"
	"sync"
)

type node struct {
	left, right *node
	payload     [64]byte
}

func tree(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{left: tree(depth - 1), right: tree(depth - 1)}
}

var keep []*node

func main() {
	file, err := os.Create(os.Args[1])
	if err != nil {
		panic(err)
	}
	defer file.Close()
	debug.SetGCPercent(20)
	keep = append(keep, tree(12))
	if err := trace.Start(file); err != nil {
		panic(err)
	}
	defer trace.Stop()

	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 10 {
				tree(10)
			}
		}()
	}
	runtime.GC()
	wg.Wait()
	procs := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(procs + 1)
	tree(12)
	runtime.GOMAXPROCS(procs)
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	runtime.GC()
}
