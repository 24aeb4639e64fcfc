package main

// What is measured, as a Go program would do it.

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

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

func spawnAll(n int) {
	var group sync.WaitGroup
	group.Add(n)
	for range n {
		go group.Done()
	}
	group.Wait()
}

func spawns(n int) {
	for range n / crowd {
		spawnAll(crowd)
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

// So many senders and as many receivers.
func buffered(pairs, messages int) {
	ch, counts := make(chan int, buffer), make(chan int)
	for range pairs {
		go func() {
			count := 0
			for range ch {
				count++
			}
			counts <- count
		}()
	}
	var senders sync.WaitGroup
	for range pairs {
		senders.Go(func() {
			for i := range messages / pairs {
				ch <- i
			}
		})
	}
	senders.Wait()
	close(ch)
	received := 0
	for range pairs {
		received += <-counts
	}
	mustBe(messages, received)
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

// The lock is held while others run.
func heldMutex(n int) {
	for range n {
		locked.Lock()
		locked.count++
		runtime.Gosched()
		locked.Unlock()
	}
}

func contend(n int, part func(int)) {
	locked.count = 0
	var group sync.WaitGroup
	for range rivalry {
		group.Go(func() { part(n / rivalry) })
	}
	group.Wait()
	mustBe(n, locked.count)
}

// Of so many leaves.
func skynet(leaves int) {
	sum := make(chan int)
	go sendSum(sum, 0, leaves)
	mustBe(leaves*(leaves-1)/2, <-sum)
}

// Sends the sum of its leaves up.
func sendSum(up chan<- int, number, leaves int) {
	if leaves == 1 {
		up <- number
		return
	}
	down := make(chan int)
	each := leaves / branches
	for i := range branches {
		go sendSum(down, number+i*each, each)
	}
	sum := 0
	for range branches {
		sum += <-down
	}
	up <- sum
}

// Each notes by how many microseconds it was late.
func sleepAll(late []uint32) {
	var group sync.WaitGroup
	for sleeper := range sleepers {
		group.Go(func() {
			for i := range naps {
				start := time.Now()
				time.Sleep(nap)
				late[sleeper*naps+i] = uint32((time.Since(start) - nap).Microseconds())
			}
		})
	}
	group.Wait()
}

// Lets so many wait for one channel; returns when each is about to. The answer closes it and returns when all have
// ended.
func park(count int) (end func()) {
	wait := make(chan struct{})
	var arrived, gone sync.WaitGroup
	arrived.Add(count)
	gone.Add(count)
	for range count {
		go func() {
			arrived.Done()
			<-wait
			gone.Done()
		}()
	}
	arrived.Wait()
	return func() {
		close(wait)
		gone.Wait()
	}
}

// As src/drive.rs: those that are no rate.

func timers() []float64 {
	late := make([]uint32, sleepers*naps) // In microseconds.
	start := time.Now()
	sleepAll(late)
	took := time.Since(start)
	slices.Sort(late)
	ms := func(i int) float64 { return float64(late[i]) / 1e3 }
	return []float64{took.Seconds(), ms(len(late) * 999 / 1000), ms(len(late) - 1)}
}

func parked(count int) []float64 {
	park(crowd)()
	time.Sleep(settle)
	residentBefore, tablesBefore := memory()
	end := park(count)
	time.Sleep(settle)
	resident, tables := memory()
	end()
	time.Sleep(10 * time.Second)
	residentAfter, _ := memory()
	each := (resident + tables - residentBefore - tablesBefore) / float64(count)
	return []float64{each, residentAfter / residentBefore}
}

func idle(count int) []float64 {
	end := park(count)
	time.Sleep(2 * settle)
	busy, start := cpuTime(), time.Now()
	time.Sleep(3 * time.Second)
	busy = cpuTime() - busy
	percent := 100 * busy.Seconds() / time.Since(start).Seconds()
	end()
	return []float64{percent}
}
