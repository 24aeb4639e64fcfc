// The Go rival of the suite http: net/http, as its documentation has it. GOMAXPROCS says with how many Ps.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	address := flag.String("addr", "127.0.0.1:0", "where to listen")
	flag.Parse()
	listener, err := net.Listen("tcp", *address)
	if err == nil {
		fmt.Println("listening on", listener.Addr())
		http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "Hello, world!") })
		err = http.Serve(listener, nil)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
