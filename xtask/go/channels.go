// Channels: unbuffered, buffered, select, close, many goroutines that come and go.
package main

import (
	"os"
	"runtime"
	"runtime/trace"
	"sync"
	"time"
)

func main() {
	file, err := os.Create(os.Args[1])
	if err != nil {
		panic(err)
	}
	defer file.Close()
	if err := trace.Start(file); err != nil {
		panic(err)
	}
	defer trace.Stop()

	pingPong()
	fanOut()
	selects()
	yields()
}

func pingPong() {
	ping, pong := make(chan int), make(chan int)
	go func() {
		for v := range ping {
			pong <- v
		}
		close(pong)
	}()
	for i := range 500 {
		ping <- i
		<-pong
	}
	close(ping)
	<-pong
}

func fanOut() {
	jobs := make(chan int, 16)
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range jobs {
			}
		}()
	}
	for i := range 1000 {
		jobs <- i
	}
	close(jobs)
	wg.Wait()
}

func selects() {
	a, b, stop := make(chan int), make(chan int), make(chan struct{})
	send := func(c chan int) {
		for i := range 100 {
			c <- i
		}
		stop <- struct{}{}
	}
	go send(a)
	go send(b)
	for done := 0; done < 2; {
		select {
		case <-a:
		case <-b:
		case <-stop:
			done++
		case <-time.After(time.Minute):
			panic("stuck")
		}
	}
}

func yields() {
	var wg sync.WaitGroup
	for range 20 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 50 {
				runtime.Gosched()
			}
		}()
	}
	wg.Wait()
}
