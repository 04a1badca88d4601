package local

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/store"
)

const benchedLeases = 100_000

func benchedKeys() []registry.Key {
	keys := make([]registry.Key, benchedLeases)
	for i := range keys {
		keys[i] = registry.NewKey(fmt.Sprintf("app%d", i%200), fmt.Sprintf("host-%d.example:service:8080", i))
	}
	return keys
}

// BenchmarkLocalRenew compares renewals by all cores with the least that could be called a registry: a
// mutex, a map and the time.
func BenchmarkLocalRenew(b *testing.B) {
	keys := benchedKeys()
	var seed atomic.Uint64
	parallel := func(b *testing.B, renew func(registry.Key)) {
		b.ReportAllocs()
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for at := seed.Add(1) * 7919; pb.Next(); at++ {
				renew(keys[at%benchedLeases])
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "renewals/s")
	}
	b.Run("map", func(b *testing.B) {
		var mu sync.Mutex
		last := make(map[registry.Key]time.Time, benchedLeases)
		for _, k := range keys {
			last[k] = time.Now()
		}
		parallel(b, func(k registry.Key) {
			mu.Lock()
			defer mu.Unlock()
			if _, ok := last[k]; ok {
				last[k] = time.Now()
			}
		})
	})
	b.Run("local", func(b *testing.B) {
		s := benchedLocal(b, keys)
		parallel(b, func(k registry.Key) {
			if _, err := s.Apply(context.Background(), registry.FromClient, registry.Renew{Key: k, LastDirty: 1}); err != nil {
				b.Error(err)
			}
		})
	})
}

// benchedLocal is a running node with a lease for each key.
func benchedLocal(b *testing.B, keys []registry.Key) *Store {
	s, err := Open(store.Config{Node: "n1", DataDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	for _, k := range keys {
		i := instance(k.App, k.ID, 3600)
		i.LastDirty = 1
		if _, err := s.Apply(ctx, registry.FromClient, registry.Register{Instance: i}); err != nil {
			b.Fatal(err)
		}
	}
	return s
}
