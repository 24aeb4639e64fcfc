package main

// As src/drive.rs and src/probe.rs: how it is measured.

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Nanoseconds per operation, and the cores that were busy.
func timed(ops int, run func(int)) (took time.Duration, ns, cores float64) {
	busy, start := cpuTime(), time.Now()
	run(ops)
	took = time.Since(start)
	busy = cpuTime() - busy
	return took, float64(took.Nanoseconds()) / float64(ops), busy.Seconds() / took.Seconds()
}

// More and more operations, until a run is long enough that is not the first.
func measure(atLeast time.Duration, run func(int)) (took time.Duration, ns, cores float64) {
	for ops := crowd; ; {
		took, ns, cores = timed(ops, run)
		if took >= atLeast && ops > crowd {
			return
		}
		shortBy := min(max(1.2*atLeast.Seconds()/max(took.Seconds(), 1e-9), 1.5), 10)
		ops = (int(float64(ops)*shortBy) + crowd - 1) / crowd * crowd
	}
}

func timers() []float64 {
	late := make([]uint32, sleepers*naps) // In microseconds.
	start := time.Now()
	sleepAll(late)
	took := time.Since(start)
	slices.Sort(late)
	ms := func(i int) float64 { return float64(late[i]) / 1e3 }
	return []float64{took.Seconds(), ms(len(late) * 999 / 1000), ms(len(late) - 1)}
}

// Until what has just been started or ended has come to rest.
const settle = 500 * time.Millisecond

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

// Of all threads of this process.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Resident pages and page tables, in bytes.
func memory() (resident, tables float64) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	bytes := func(key string) float64 {
		_, rest, _ := strings.Cut(string(status), key)
		kib, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			panic(err)
		}
		return float64(kib) * 1024
	}
	return bytes("VmRSS:"), bytes("VmPTE:")
}
