// Tasks, regions and logs: nested, across goroutines, and one task that does not end; over more than one generation.
package main

import (
	"context"
	"os"
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

	ctx := context.Background()
	_, _ = trace.NewTask(ctx, "never ended")
	for range 3 {
		order(ctx)
	}
	// A generation is about a second long.
	trace.WithRegion(ctx, "sleep", func() { time.Sleep(1200 * time.Millisecond) })
	order(ctx)
}

func order(ctx context.Context) {
	ctx, task := trace.NewTask(ctx, "order")
	defer task.End()
	trace.Log(ctx, "kind", "café au lait")
	var wg sync.WaitGroup
	for _, step := range []string{"grind", "boil", "froth"} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer trace.StartRegion(ctx, step).End()
			ctx, part := trace.NewTask(ctx, step)
			defer part.End()
			trace.WithRegion(ctx, "outer", func() {
				trace.WithRegion(ctx, "inner", func() { time.Sleep(300 * time.Microsecond) })
				trace.Logf(ctx, "step", "%s is done", step)
			})
		}()
	}
	wg.Wait()
}
