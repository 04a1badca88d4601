package truth

import (
	"strconv"
	"sync"
	"testing"
	"time"
)

func TestManyClientsNoteWhileListsAreJudged(t *testing.T) {
	const clients, each = 8, 50
	b := new(Book)
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for i := range each {
				id := strconv.Itoa(c*each + i)
				b.Registering(id, 1, time.Now())
				b.Registered(id, 1, time.Now())
				b.Renewed(id, time.Now())
			}
		})
	}
	all.Go(func() {
		for range each {
			b.Mark()
			b.Judge(0, Listing{"0": 1}, time.Now(), time.Now())
		}
	})
	all.Wait()
	if got := b.Expected(); got != clients*each {
		t.Errorf("%d instances are expected, want %d", got, clients*each)
	}
}

func BenchmarkAListOfTenThousandIsJudged(b *testing.B) {
	var book Book
	listed := make(Listing)
	for i := range 10_000 {
		id := "instance-" + strconv.Itoa(i)
		listed[id] = 1
		book.Registering(id, 1, began)
		book.Registered(id, 1, began)
	}
	for b.Loop() {
		book.Judge(0, listed, ms(1), ms(2))
	}
}
