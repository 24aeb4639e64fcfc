// Mutexes and their relatives under contention, timers and sleeps, a goroutine that needs to be preempted, and one that
// is blocked before the trace begins and after it ends.
package main

import (
	"os"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	file, err := os.Create(os.Args[1])
	if err != nil {
		panic(err)
	}
	defer file.Close()
	never := make(chan int)
	go func() { <-never }()
	time.Sleep(time.Millisecond)
	if err := trace.Start(file); err != nil {
		panic(err)
	}
	defer trace.Stop()

	contended()
	conditions()
	preempted()
	timers()
}

func contended() {
	var mutex sync.RWMutex
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := range 200 {
				if (i+j)%3 == 0 {
					mutex.RLock()
					spin(2 * time.Microsecond)
					mutex.RUnlock()
				} else {
					mutex.Lock()
					spin(2 * time.Microsecond)
					mutex.Unlock()
				}
			}
		}()
	}
	wg.Wait()
}

func conditions() {
	var mutex sync.Mutex
	cond := sync.NewCond(&mutex)
	turn := 0
	var wg sync.WaitGroup
	for me := range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 50 {
				mutex.Lock()
				for turn != me {
					cond.Wait()
				}
				turn = (turn + 1) % 3
				cond.Broadcast()
				mutex.Unlock()
			}
		}()
	}
	wg.Wait()
}

func preempted() {
	var wg sync.WaitGroup
	var count atomic.Int64
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			spin(30 * time.Millisecond)
			count.Add(1)
		}()
	}
	wg.Wait()
}

func timers() {
	ticker := time.NewTicker(500 * time.Microsecond)
	defer ticker.Stop()
	for range 10 {
		<-ticker.C
	}
	done := make(chan bool)
	time.AfterFunc(time.Millisecond, func() { done <- true })
	<-done
}

func spin(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}
