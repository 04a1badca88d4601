package balance

import (
	"fmt"
	"net/http"
	"testing"
)

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{2, 10, 1000} {
		zoned := instances("ORDERS", n, "a", "b")
		for name, p := range map[string]Picker{"RoundRobin": RoundRobin(), "InZone": InZone("a", nil)} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						p.Pick(zoned)
					}
				})
			})
		}
	}
}

// BenchmarkRoundTrip is what a Transport adds to its Base: compare "alone".
func BenchmarkRoundTrip(b *testing.B) {
	answer := &http.Response{StatusCode: 200, Body: http.NoBody}
	base := baseFunc(func(*http.Request) (*http.Response, error) { return answer, nil })
	ten := list(instances("ORDERS", 10)...)
	avoiding := ten.transport(b, Config{Base: base})
	avoiding.avoided.add(listed{address: address{"h1", 8080}})
	for name, transport := range map[string]http.RoundTripper{
		"alone":    base,
		"balanced": ten.transport(b, Config{Base: base}),
		"avoiding": avoiding,
	} {
		b.Run(name, func(b *testing.B) {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://orders/", nil)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := transport.RoundTrip(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
