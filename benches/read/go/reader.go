// Reads a trace with Go's own library and counts its events: reader FILE
//
// The library is internal, so this is built as if it were a command of Go's.
package main

import (
	"bufio"
	"fmt"
	"internal/trace"
	"io"
	"os"
	"time"
)

func main() {
	file, err := os.Open(os.Args[1])
	fail(err)
	start := time.Now()
	reader, err := trace.NewReader(bufio.NewReaderSize(file, 1<<20))
	fail(err)
	events, sum := 0, uint64(0)
	for {
		event, err := reader.ReadEvent()
		if err == io.EOF {
			break
		}
		fail(err)
		events++
		sum += uint64(event.Time()) ^ uint64(event.Kind())
	}
	fmt.Println(events, sum, time.Since(start).Nanoseconds())
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
