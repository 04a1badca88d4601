package registry

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Large records go before there are too many of them: as many as fit stay, the newest.
func TestRecordsOfRemovalsAreBoundedByBytes(t *testing.T) {
	g := newRig(t)
	large := []Pair{{"k", strings.Repeat("v", 4<<20)}}
	most := maxRemoved / (4 << 20)
	for n := range most + 10 {
		i := instance(Key{"ORDERS", fmt.Sprint(n)}, Up, 1)
		i.Metadata = large
		g.register(i)
		g.client(Cancel{i.Key()})
	}
	f := g.Freeze()
	if n := len(f.Removals); n < most-2 || n >= most || f.Pruned == 0 || f.Removals[n-1].Lease.Instance.ID() != fmt.Sprint(most+9) {
		t.Errorf("%d records of 4 MiB, pruned to %d; want just below %d, and the newest among them", n, f.Pruned, most)
	}
	expect.That(t, g.recordBytes <= maxRemoved, "%d bytes of records, want at most %d", g.recordBytes, maxRemoved)
	thawed := need.Got(Thaw(f))(t)
	expect.That(t, thawed.recordBytes == g.recordBytes, "%d bytes of records after a restore, want %d", thawed.recordBytes, g.recordBytes)
	g.pass(deltaWindow + 2*deltaStep)
	g.Advance(g.now)
	per := g.recordBytes / len(f.Removals)
	expect.That(t, per <= 4096, "a record that was reduced counts %d bytes, want at most 4096", per)
}

func TestEveryTextOfAnInstanceHasWeight(t *testing.T) {
	var i Instance
	v := reflect.ValueOf(&i).Elem()
	for n := range v.NumField() {
		f := v.Field(n)
		before := i.weight()
		switch name := v.Type().Field(n).Name; {
		case f.Kind() == reflect.String:
			f.SetString("12345")
			expect.Equal(t, i.weight()-before, 5, "five bytes of %s weigh", name)
		case f.Type() == reflect.TypeFor[[]Pair]():
			f.Set(reflect.ValueOf([]Pair{{"12", "345"}}))
			expect.Equal(t, i.weight()-before, 5+pairWeight, "an entry of %s with five bytes weighs", name)
		}
	}
}

func TestTheGrowthOfTheCatalogIsWhatItGrowsBy(t *testing.T) {
	g := newRig(t)
	node := func(value string) *Node { return &Node{Name: "n", Address: "10.0.0.1", Meta: []Pair{{"k", value}}} }
	check := func(id, output string) []*Check { return []*Check{{ID: id, Name: id, Output: output}} }
	for _, row := range []struct {
		name string
		op   RegisterCatalog
	}{
		{"a node", RegisterCatalog{Node: node("small")}},
		{"the same again", RegisterCatalog{Node: node("small")}},
		{"with larger metadata", RegisterCatalog{Node: node(strings.Repeat("x", 1000))}},
		{"with less", RegisterCatalog{Node: node("")}},
		{"a check of it", RegisterCatalog{Node: node(""), Checks: check("c", "fine")}},
		{"the same check", RegisterCatalog{Node: node(""), Checks: check("c", "fine")}},
		{"another one of a node that is kept", RegisterCatalog{Node: node("not taken"), KeepNode: true, Checks: check("d", strings.Repeat("x", 300))}},
		{"with less output", RegisterCatalog{Node: node(""), KeepNode: true, Checks: check("d", "")}},
	} {
		before := g.View()
		res := g.client(row.op)
		need.That(t, res.Outcome == Done, "%s: %+v", row.name, res)
		got, want := before.CatalogGrowth(row.op), g.View().CatalogBytes()-before.CatalogBytes()
		expect.That(t, got == want, "%s: a growth of %d bytes, and it grew by %d", row.name, got, want)
	}
	g.client(DeregisterCatalog{Node: "n"})
	n := g.View().CatalogBytes()
	expect.That(t, n == 0, "%d bytes of no nodes", n)
}
