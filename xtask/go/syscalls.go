// System calls, blocking ones among them: pipes, files, a raw sleep that loses its P, sockets, a locked thread.
package main

import (
	"io"
	"net"
	"os"
	"runtime"
	"runtime/trace"
	"sync"
	"syscall"
	"time"
)

func main() {
	file, err := os.Create(os.Args[1])
	check(err)
	defer file.Close()
	check(trace.Start(file))
	defer trace.Stop()

	var wg sync.WaitGroup
	for _, work := range []func(){files, sleeps, sockets, locked} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			work()
		}()
	}
	wg.Wait()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func files() {
	reader, writer, err := os.Pipe()
	check(err)
	go func() {
		for range 100 {
			_, err := writer.Write([]byte("some bytes"))
			check(err)
		}
		writer.Close()
	}()
	_, err = io.Copy(io.Discard, reader)
	check(err)
	for range 50 {
		_, err := os.Stat(".")
		check(err)
	}
}

// Longer than sysmon lets a system call keep its P.
func sleeps() {
	for range 5 {
		nap := syscall.NsecToTimespec(int64(2 * time.Millisecond))
		check(syscall.Nanosleep(&nap, nil))
	}
}

func sockets() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer listener.Close()
	go func() {
		server, err := listener.Accept()
		check(err)
		io.Copy(server, server)
		server.Close()
	}()
	client, err := net.Dial("tcp", listener.Addr().String())
	check(err)
	defer client.Close()
	buffer := make([]byte, 64)
	for range 100 {
		_, err := client.Write(buffer)
		check(err)
		_, err = io.ReadFull(client, buffer)
		check(err)
	}
}

func locked() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range 10 {
		time.Sleep(200 * time.Microsecond)
	}
}
