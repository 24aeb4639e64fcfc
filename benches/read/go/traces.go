// Makes a trace of about so many megabytes: traces pingpong|skynet|echo FILE MB
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime/trace"
	"strconv"
	"sync"
	"sync/atomic"
)

// counted counts what is written through it.
type counted struct {
	to    io.Writer
	bytes atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.bytes.Add(int64(n))
	return n, err
}

func main() {
	kinds := map[string]func(more func() bool) error{"pingpong": pingPong, "skynet": skynets, "echo": echo}
	if len(os.Args) != 4 || kinds[os.Args[1]] == nil {
		fail(fmt.Errorf("usage: traces pingpong|skynet|echo FILE MB"))
	}
	megabytes, err := strconv.Atoi(os.Args[3])
	fail(err)
	file, err := os.Create(os.Args[2])
	fail(err)
	out := &counted{to: file}
	fail(trace.Start(out))
	err = kinds[os.Args[1]](func() bool { return out.bytes.Load() < int64(megabytes)<<20 })
	trace.Stop()
	fail(err)
	fail(file.Close())
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pingPong lets eight pairs of goroutines send each other numbers.
func pingPong(more func() bool) error {
	var wg sync.WaitGroup
	for range 8 {
		ping, pong := make(chan int), make(chan int)
		wg.Add(2)
		go func() {
			defer wg.Done()
			for v := range ping {
				pong <- v
			}
		}()
		go func() {
			defer wg.Done()
			defer close(ping)
			for more() {
				for i := range 1000 {
					ping <- i
					<-pong
				}
			}
		}()
	}
	wg.Wait()
	return nil
}

// skynets adds numbers up in a tree of 11,111 goroutines, again and again.
func skynets(more func() bool) error {
	for more() {
		sum := make(chan int)
		go skynet(sum, 0, 10000)
		if got := <-sum; got != 49995000 {
			return fmt.Errorf("the sum is %d", got)
		}
	}
	return nil
}

func skynet(sum chan int, first, size int) {
	if size == 1 {
		sum <- first
		return
	}
	parts := make(chan int)
	for i := range 10 {
		go skynet(parts, first+i*size/10, size/10)
	}
	total := 0
	for range 10 {
		total += <-parts
	}
	sum <- total
}

// echo lets 64 clients talk to a server on this machine.
func echo(more func() bool) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				io.Copy(conn, struct{ io.Reader }{conn})
			}()
		}
	}()
	errs := make(chan error)
	for range 64 {
		go func() { errs <- client(listener.Addr().String(), more) }()
	}
	for range 64 {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return err
}

func client(address string, more func() bool) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	buf := make([]byte, 64)
	for more() {
		for range 100 {
			if _, err := conn.Write(buf); err != nil {
				return err
			}
			if _, err := io.ReadFull(conn, buf); err != nil {
				return err
			}
		}
	}
	return nil
}
