package observe

import (
	"net/http"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
)

func TestTheEndIsWhatNodesHoldWhenTheyHaveSettled(t *testing.T) {
	const lease = 2 * time.Second
	keys := map[string]int64{"a": 1}
	for _, c := range []struct {
		name string
		set  func(*fakeCluster, *truth.Book)
		want trial.Ending // of the first node
		took time.Duration
	}{
		{"settled", func(*fakeCluster, *truth.Book) {}, trial.Ending{Keys: keys}, 0},
		{
			"a node that settles late",
			func(c *fakeCluster, book *truth.Book) {
				know(book, "b", 1)
				c.nodes[1].put("b", 1)
				time.AfterFunc(time.Second, func() { c.nodes[0].put("b", 1) })
			},
			trial.Ending{Keys: keys}, time.Second,
		},
		{
			"missing",
			func(_ *fakeCluster, book *truth.Book) { know(book, "b", 1) },
			trial.Ending{Keys: keys, Missing: []string{"b"}}, endLimit,
		},
		{
			"revived",
			func(c *fakeCluster, book *truth.Book) {
				know(book, "b", 1)
				book.Canceling("b", 2, time.Now())
				book.Canceled("b", 2, time.Now())
				c.nodes[0].put("b", 1)
			},
			trial.Ending{Keys: keys, Revived: []string{"b"}}, endLimit,
		},
		{
			"dead and protected",
			func(c *fakeCluster, book *truth.Book) {
				know(book, "b", 1)
				c.nodes[0].put("b", 1)
				book.Died("b", time.Now())
				time.Sleep(lease)
			},
			trial.Ending{Keys: keys, Dead: []string{"b"}}, 0,
		},
		{"other versions", func(c *fakeCluster, _ *truth.Book) { c.nodes[0].put("a", 2) }, trial.Ending{Keys: map[string]int64{"a": 2}}, endLimit},
		{
			"nodes that do not answer",
			func(c *fakeCluster, _ *truth.Book) {
				for _, n := range c.nodes {
					n.set(func(s *fakeState) { s.refuses = true })
				}
			},
			trial.Ending{Failed: "/eureka/v2/apps?consistency=stale of node1:8761: status 503"}, endLimit,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := newFakeCluster(2)
				config := cluster.config()
				config.Book = new(truth.Book)
				know(config.Book, "a", 1)
				for _, n := range cluster.nodes {
					n.put("a", 1)
				}
				c.set(cluster, config.Book)
				e := &ender{observer: newObserver(config, &http.Client{Transport: cluster}), app: "A", keys: []string{"a", "canceled"}, lease: lease}
				begun := time.Now()
				got := e.settle(t.Context())
				if took := time.Since(begun); took < c.took || took > c.took+2*endEvery {
					t.Errorf("it took %v, want %v", took, c.took)
				}
				if len(got) != 2 || !reflect.DeepEqual(got[0], c.want) || got[1].Node != 1 {
					t.Errorf("it ends as %+v, want %+v and the other node", got, c.want)
				}
			})
		})
	}
}
