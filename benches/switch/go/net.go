// The Go rival of the suite net: the same command line, workloads and output as its other children, which are described in
// src/net/mod.rs.
package main

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// As in src/net/mod.rs.
const (
	local        = "127.0.0.1:0"
	messageLen   = 64
	echoBuffer   = 1_024
	churners     = 8
	streamBuffer = 64 << 10
	dialPause    = 2 * time.Millisecond
)

func main() {
	child := flag.String("child", "go", "go; go-sink: traced; go-flight: with a flight recorder")
	workload := flag.String("workloads", "", "one workload")
	procs := flag.Int("procs", 1, "GOMAXPROCS")
	millis := flag.Int("millis", 100, "least length of the measured run")
	connections := flag.Int("connections", 10_000, "idle ones")
	quick := flag.Bool("quick", false, "less of everything")
	flag.Parse()
	runtime.GOMAXPROCS(*procs)
	atLeast := time.Duration(*millis) * time.Millisecond
	scaled := func(usual, short int) int {
		if *quick {
			return short
		}
		return usual
	}
	run := map[string]func() []float64{
		"echo-64":   func() []float64 { return echo(atLeast, 64, scaled(100, 2)) },
		"echo-1000": func() []float64 { return echo(atLeast, scaled(1_000, 100), scaled(10, 2)) },
		"churn":     func() []float64 { return churn(atLeast) },
		"stream":    func() []float64 { return stream(scaled(1<<30, 16<<20)) },
		"connected": func() []float64 { return idle(scaled(*connections, 100), *quick) },
		"dial":      func() []float64 { return dial(*procs, scaled(200, 10)) },
	}[*workload]
	if run == nil {
		fmt.Fprintln(os.Stderr, "no such workload:", *workload)
		os.Exit(1)
	}
	printValues(traced(*child, run))
}

// So many connections: both ends.
func pairs(count int) (clients, servers []net.Conn) {
	listener, err := net.Listen("tcp", local)
	must(err)
	for range count {
		client, err := net.Dial("tcp", listener.Addr().String())
		must(err)
		server, err := listener.Accept()
		must(err)
		clients, servers = append(clients, client), append(servers, server)
	}
	must(listener.Close())
	return
}

// No two are alike.
func fill(message []byte, connection, round int) {
	for i := range messageLen / 8 {
		binary.LittleEndian.PutUint64(message[8*i:], uint64(connection)<<44^uint64(round)<<4^uint64(i))
	}
}

func converse(conn net.Conn, connection, rounds int) {
	message, reply := make([]byte, messageLen), make([]byte, messageLen)
	for round := range rounds {
		fill(message, connection, round)
		_, err := conn.Write(message)
		must(err)
		_, err = io.ReadFull(conn, reply)
		must(err)
		if !bytes.Equal(message, reply) {
			panic(fmt.Sprint("connection ", connection, ", round ", round, ": not what was sent comes back"))
		}
	}
}

// Until its client closes; how many bytes it has echoed.
func serve(conn net.Conn) (echoed int) {
	buffer := make([]byte, echoBuffer)
	for {
		n, err := conn.Read(buffer)
		if err == io.EOF {
			must(conn.Close())
			return
		}
		must(err)
		_, err = conn.Write(buffer[:n])
		must(err)
		echoed += n
	}
}

// Serves all of them; the answer closes the clients, waits, and tells how many bytes were echoed.
func open(count int) (clients []net.Conn, end func() int) {
	clients, servers := pairs(count)
	counts := make(chan int, count)
	for _, server := range servers {
		go func() { counts <- serve(server) }()
	}
	return clients, func() (echoed int) {
		for _, client := range clients {
			must(client.Close())
		}
		for range count {
			echoed += <-counts
		}
		return
	}
}

// Multiples of so many round trips per connection.
func echo(atLeast time.Duration, connections, each int) []float64 {
	clients, end := open(connections)
	_, ns, cores := measure(atLeast, connections*each, func(roundTrips int) {
		var group sync.WaitGroup
		for i, client := range clients {
			group.Go(func() { converse(client, i, roundTrips/connections) })
		}
		group.Wait()
	})
	mustBe(opsAll*messageLen, end())
	return []float64{ns, cores}
}

// Starts a server that returns a byte to each client, to the end of the process.
func answering() (address string) {
	listener, err := net.Listen("tcp", local)
	must(err)
	go func() {
		for {
			conn, err := listener.Accept()
			must(err)
			go func() {
				var buffer [1]byte
				_, err := io.ReadFull(conn, buffer[:])
				must(err)
				_, err = conn.Write(buffer[:])
				must(err)
				must(conn.Close())
			}()
		}
	}()
	return listener.Addr().String()
}

func ask(conn net.Conn, sent byte) {
	buffer := [1]byte{sent}
	_, err := conn.Write(buffer[:])
	must(err)
	buffer[0] = ^sent
	_, err = io.ReadFull(conn, buffer[:])
	must(err)
	mustBe(int(sent), int(buffer[0]))
}

func churn(atLeast time.Duration) []float64 {
	address := answering()
	_, ns, cores := measure(atLeast, 100*churners, func(connections int) {
		var group sync.WaitGroup
		for range churners {
			group.Go(func() {
				for i := range connections / churners {
					conn, err := net.Dial("tcp", address)
					must(err)
					must(conn.(*net.TCPConn).SetLinger(0))
					ask(conn, byte(i))
					must(conn.Close())
				}
			})
		}
		group.Wait()
	})
	return []float64{ns, cores}
}

func water() []byte {
	water := make([]byte, streamBuffer)
	for i := range water {
		water[i] = byte(uint32(i) * 0x9e3779b9 >> 24)
	}
	return water
}

func stream(count int) []float64 {
	flow(count / 16)
	took, ns, cores := timed(count, flow)
	return []float64{float64(count) / 1e6 / took.Seconds(), ns * (1 << 30) / 1e6, cores}
}

func flow(count int) {
	clients, servers := pairs(1)
	water := water()
	go func() {
		for range count / streamBuffer {
			_, err := clients[0].Write(water)
			must(err)
		}
		must(clients[0].Close())
	}()
	buffer, seen := make([]byte, streamBuffer), 0
	for {
		n, err := servers[0].Read(buffer)
		if err == io.EOF {
			break
		}
		must(err)
		end := seen + n
		if buffer[0] != water[seen%streamBuffer] || buffer[n-1] != water[(end-1)%streamBuffer] {
			panic(fmt.Sprint("another byte comes out, near ", end))
		}
		seen = end
	}
	mustBe(count, seen)
	must(servers[0].Close())
}

func idle(count int, quick bool) []float64 {
	allowFiles(uint64(2*count + 100))
	_, end := open(10)
	mustBe(0, end())
	time.Sleep(settle)
	resident, tables := memory()
	before := resident + tables
	_, end = open(count)
	time.Sleep(2 * settle)
	resident, tables = memory()
	length := 3 * time.Second
	if quick {
		length = settle
	}
	busy, start := cpuTime(), time.Now()
	time.Sleep(length)
	busy = cpuTime() - busy
	percent := 100 * busy.Seconds() / time.Since(start).Seconds()
	mustBe(0, end())
	return []float64{max(resident+tables-before, 0) / float64(count), percent}
}

// What the parent has raised is inherited; run by itself it raises it.
func allowFiles(count uint64) {
	var limit syscall.Rlimit
	must(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Cur < count {
		limit.Cur, limit.Max = max(count, limit.Max), max(count, limit.Max)
		must(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	}
}

func dial(busy, count int) []float64 {
	address := answering()
	var stop atomic.Bool
	var computing sync.WaitGroup
	for range busy {
		computing.Go(func() { compute(&stop) })
	}
	time.Sleep(50 * dialPause)
	took := make([]time.Duration, count)
	for i := range took {
		time.Sleep(dialPause)
		start := time.Now()
		conn, err := net.Dial("tcp", address)
		must(err)
		ask(conn, byte(i))
		took[i] = time.Since(start)
		must(conn.Close())
	}
	stop.Store(true)
	computing.Wait()
	slices.Sort(took)
	ms := func(percent int) float64 { return took[count*percent/100].Seconds() * 1e3 }
	return []float64{ms(50), ms(99)}
}

var computed atomic.Uint64

func compute(stop *atomic.Bool) {
	random := uint64(1)
	for !stop.Load() {
		random ^= random << 13
		random ^= random >> 7
		random ^= random << 17
	}
	computed.Add(random)
}
