package own

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// FuzzPosition checks that an accepted position has one spelling, and can be sent in a line of an event.
func FuzzPosition(f *testing.F) {
	for _, seed := range []string{"test-1", "a-b-0", "-0", "", "-", "test-01", "test-+1", "test-18446744073709551616", "te\nst-1", "test\xff-1", "test-1\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePosition(text)
		if err != nil {
			return
		}
		expect.That(t, p.String() == text && strings.HasPrefix(text, p.epoch+"-"), "%q was read as %q", text, p)
		expect.That(t, !strings.ContainsAny(text, "\r\n\x00") && len(text) <= 255, "%q was accepted", text)
	})
}

func TestChangeIsEncodedOnceForAllWhoWatch(t *testing.T) {
	var texts changeTexts
	change := func(index registry.Index, id string) registry.Change {
		l := &registry.Lease{Instance: &registry.Instance{App: "ORDERS", InstanceID: id}, Changed: index, Registered: index, RegisteredAt: 1}
		return registry.Change{Index: index, Lease: l, Kind: registry.Live}
	}
	same := func(a, b []byte) bool { return &a[0] == &b[0] }
	first, later := change(7, "o-1"), change(7+registry.Index(len(texts)), "o-2") // which share a slot
	var mu sync.Mutex
	seen := map[*byte]bool{}
	var readers sync.WaitGroup
	for range 100 {
		readers.Go(func() {
			text := texts.of("a", first)
			mu.Lock()
			defer mu.Unlock()
			seen[&text[0]] = true
		})
	}
	readers.Wait()
	expect.Equal(t, len(seen), 1, "of 100 who read one change, texts:")
	one := texts.of("a", first)
	expect.That(t, bytes.Equal(one, appendChange(nil, "a", first)), "the text is %s", one)
	for _, other := range [][]byte{texts.of("a", later), texts.of("b", first), texts.of("a", change(7, "o-1"))} {
		expect.That(t, !same(one, other), "another change has the text %s", other)
	}
	expect.That(t, bytes.Equal(texts.of("a", first), one), "after others in its place the text is another one")
}
