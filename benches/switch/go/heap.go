package main

// Trees and graphs that the collector has to find out about; as src/rivals/gort_heap.rs.

import (
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	treeDepthMin = 4
	treeDepthMax = 18
	ring         = 8
	rings        = 3_000
	collections  = 50
)

type tree struct {
	left, right *tree
}

func newTree(depth int) *tree {
	if depth == 0 {
		return &tree{}
	}
	return &tree{newTree(depth - 1), newTree(depth - 1)}
}

func (t *tree) count() int {
	n := 1
	if t.left != nil {
		n += t.left.count()
	}
	if t.right != nil {
		n += t.right.count()
	}
	return n
}

// So many of one depth that each depth makes as many nodes.
func treesOfDepth(depth, ops int) int {
	depths := (treeDepthMax-treeDepthMin)/2 + 1
	return max(ops/depths/(2<<depth-1), 1)
}

func gcTrees(ops int) {
	longLived := newTree(treeDepthMax)
	var group sync.WaitGroup
	for depth := treeDepthMin; depth <= treeDepthMax; depth += 2 {
		group.Go(func() {
			trees, nodes := treesOfDepth(depth, ops), 0
			for range trees {
				nodes += newTree(depth).count()
			}
			mustBe(trees*(2<<depth-1), nodes)
		})
	}
	group.Wait()
	mustBe(2<<treeDepthMax-1, longLived.count())
}

type node struct {
	next, previous *node
	value          [4]uint64
}

func newRing(i int) *node {
	n := uint64(i)
	fresh := func() *node { return &node{value: [4]uint64{n, n, n, n}} }
	first := fresh()
	last := first
	for range ring - 1 {
		next := fresh()
		next.previous, last.next = last, next
		last = next
	}
	last.next, first.previous = first, last
	return first
}

func churn(ops int) {
	live := make([]*node, rings)
	for i := range live {
		live[i] = newRing(i)
	}
	random := uint64(0x2545_f491_4f6c_dd1d)
	for i := range ops / ring {
		random ^= random << 13
		random ^= random >> 7
		random ^= random << 17
		live[random%rings] = newRing(i)
	}
	for _, first := range live {
		mustBe(int(first.value[0]), int(first.previous.next.value[3]))
	}
}

// Collects again and again, with so many bytes of objects that live, beside a goroutine that computes. A pause here is all that one
// collection stopped the world for.
func pauses(bytes int) []float64 {
	live := make([]*node, bytes/int(unsafe.Sizeof(node{}))/ring)
	for i := range live {
		live[i] = newRing(i)
	}
	var stop atomic.Bool
	var busy sync.WaitGroup
	busy.Go(func() {
		for !stop.Load() {
		}
	})
	for range collections {
		runtime.GC()
	}
	stop.Store(true)
	busy.Wait()
	var stats debug.GCStats
	debug.ReadGCStats(&stats)
	last := slices.Sorted(slices.Values(stats.Pause[:collections]))
	runtime.KeepAlive(live)
	us := func(q int) float64 { return float64(last[q*(collections-1)/100].Nanoseconds()) / 1e3 }
	return []float64{us(50), us(99)}
}

func gcGraph(ops int) {
	var group sync.WaitGroup
	for range rivalry {
		group.Go(func() { churn(ops / rivalry) })
	}
	group.Wait()
}
