package eurekaroutes

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/fsmtest"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// sample returns an instance of about 1.1 KB in JSON.
func sample(app, id string, dirty int64) *registry.Instance {
	return &registry.Instance{
		InstanceID: id, HostName: id + ".example.internal", App: app, IPAddr: "10.1.2.3", Status: registry.Up, CountryID: 1,
		Port: registry.Port{Number: 8080, Enabled: true}, SecurePort: registry.Port{Number: 443},
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, RenewalInterval: 30, Duration: 90, LastDirty: dirty,
		Metadata: []registry.Pair{
			{Key: "zone", Value: "zone-a"}, {Key: "management.port", Value: "8081"},
			{Key: "version", Value: "1.10"}, {Key: "commit", Value: strings.Repeat("0123456789", 4)},
		},
		HomePageURL:   "http://" + id + ".example.internal:8080/",
		StatusPageURL: "http://" + id + ".example.internal:8080/actuator/info", HealthCheckURL: "http://" + id + ".example.internal:8080/actuator/health",
		VIP: strings.ToLower(app), SecureVIP: strings.ToLower(app),
	}
}

// filled returns a registry with n instances in applications of 100.
func filled(t testing.TB, n int) *fsmtest.Memory {
	b := fsmtest.New()
	for i := range n {
		b.Perform(t, registry.Register{Instance: sample(fmt.Sprintf("APP%04d", i/100), fmt.Sprintf("instance-%06d", i), 1)})
	}
	return b
}

func newTestDocuments(s registry.Service) *documents {
	d := newDocuments(s)
	d.built = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "built"}, []string{"kind", "form"})
	return d
}

// textOf returns the text of a document, decompressed by another implementation than the one under test.
func textOf(t testing.TB, doc *document, rep representation) string {
	t.Helper()
	joined := bytes.Join(doc.parts, nil)
	need.That(t, int64(len(joined)) == doc.size, "the document says it has %d bytes, it has %d", doc.size, len(joined))
	if !rep.gzip {
		return string(joined)
	}
	r := need.Got(gzip.NewReader(bytes.NewReader(joined)))(t)
	text, err := io.ReadAll(r) // also checks the checksum and the length
	need.OK(t, err)
	return string(text)
}

func representations() []representation {
	var all []representation
	for _, f := range []eureka.Format{{}, {Compact: true}, {XML: true}, {XML: true, Compact: true}, {XML: true, V1: true}, {XML: true, Compact: true, V1: true}} {
		all = append(all, representation{format: f}, representation{format: f, gzip: true})
	}
	return all
}

// A document rebuilt from chunks again and again equals the one written in one go.
func TestDocumentFromChunksIsTheWholeDocument(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := fsmtest.New()
		d := newTestDocuments(b)
		rep := rapid.SampledFrom(representations()).Draw(rt, "representation")
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			first, n := rapid.IntRange(0, 400).Draw(rt, "first"), rapid.IntRange(0, 300).Draw(rt, "n")
			apps, cancel := rapid.IntRange(1, 200).Draw(rt, "apps"), rapid.Bool().Draw(rt, "cancel")
			for i := first; i < first+n; i++ {
				app, id := fmt.Sprintf("A%d", i%apps), fmt.Sprint(i)
				if cancel {
					b.Perform(t, registry.Cancel{Key: registry.NewKey(app, id)})
					continue
				}
				b.Perform(t, registry.Register{Instance: sample(app, id, b.Clock())})
			}
			v := b.Newest()
			want := string(eureka.AppendApplications(nil, rep.format, eureka.FullVersion, v.Counts().HashCode(), v.Leases()))
			need.Equal(rt, textOf(t, d.newestOf(whole, v, rep), rep), want, "%+v: got", rep)
			want = string(eureka.AppendDelta(nil, rep.format, v.Delta()))
			need.Equal(rt, textOf(t, d.newestOf(changed, v, rep), rep), want, "the delta, %+v: got", rep)
			b.Pass(time.Duration(rapid.IntRange(0, 120).Draw(rt, "pause")) * time.Second)
		}
	})
}

func TestDocumentChangeEncodesOneChunk(t *testing.T) {
	b := filled(t, 5000)
	var l list
	rep := representation{gzip: true}
	for _, change := range []struct {
		name string
		op   registry.Op
		most int
	}{
		{"nothing", nil, 0},
		{"a re-registration", registry.Register{Instance: sample("APP0020", "instance-002042", 2)}, 1},
		{"a new instance", registry.Register{Instance: sample("APP0020", "instance-002042-b", 1)}, 2},
		{"a cancel", registry.Cancel{Key: registry.NewKey("APP0030", "instance-003001")}, 2},
		{"a cancel of the first", registry.Cancel{Key: registry.NewKey("APP0000", "instance-000000")}, 2},
	} {
		l.rebuild(whole, b.Newest(), rep)
		before := map[*chunk]bool{}
		for _, c := range l.chunks {
			before[c] = true
		}
		if change.op != nil {
			b.Perform(t, change.op)
		}
		l.rebuild(whole, b.Newest(), rep)
		encoded := 0
		for _, c := range l.chunks {
			if !before[c] {
				encoded++
			}
		}
		expect.That(t, encoded <= change.most, "%s: %d of %d chunks were encoded, want at most %d", change.name, encoded, len(l.chunks), change.most)
	}
	for _, c := range l.chunks {
		expect.That(t, len(c.leases) <= maxChunk, "a chunk has %d leases", len(c.leases))
	}
	mean := 5000 / len(l.chunks)
	expect.That(t, mean >= meanChunk/3 && mean <= meanChunk*3, "a chunk has %d leases on average, want about %d", mean, meanChunk)
}

func TestDocumentIsBuiltOncePerVersion(t *testing.T) {
	b := filled(t, 300)
	d := newTestDocuments(b)
	for version := range 3 {
		v := b.Newest()
		var asking sync.WaitGroup
		for range 32 {
			asking.Go(func() { d.newestOf(whole, v, representation{}) })
		}
		asking.Wait()
		expect.Equal(t, testutil.ToFloat64(d.built.WithLabelValues("full", "json")), float64(version+1), "version %d: documents were built:", version)
		b.Perform(t, registry.Register{Instance: sample("APP0001", "another", int64(version+1))})
	}
}

func TestDocumentServesOlderReads(t *testing.T) {
	b := filled(t, 10)
	d := newTestDocuments(b)
	old := b.Newest()
	b.Perform(t, registry.Register{Instance: sample("NEW", "instance", 1)})
	doc := d.newestOf(whole, old, representation{})
	expect.That(t, doc.index == b.Newest().Index(), "the document is of index %d, want the newest, %d", doc.index, b.Newest().Index())
}

func TestDocumentOfAnotherHistoryIsNotUsed(t *testing.T) {
	doc := &document{version: version{epoch: "restored", index: 1 << 40}}
	expect.That(t, !doc.covers(whole.versionOf(filled(t, 1).Newest())), "a document of another epoch counts as new")
}

func TestDocumentsUnusedRepresentationsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := filled(t, 300)
		d := newTestDocuments(b)
		rare, common := representation{format: eureka.Format{Compact: true}}, representation{}
		d.newestOf(whole, b.Newest(), rare)
		d.newestOf(changed, b.Newest(), rare)
		for range 12 {
			d.newestOf(whole, b.Newest(), common)
			time.Sleep(time.Minute) // virtual
		}
		d.newestOf(whole, b.Newest(), common)
		for k := range whole + 2 {
			expect.That(t, d.list(k, rare).current.Load() == nil && d.list(k, rare).chunks == nil, "the unused representation of %v is kept", k)
		}
		expect.That(t, d.list(whole, common).current.Load() != nil, "the used representation was dropped")
		got, want := d.bytes(), float64(d.list(whole, common).keptBytes.Load())
		expect.That(t, got == want && want != 0, "%v bytes are reported, want %v", got, want)
		expect.That(t, strings.Contains(textOf(t, d.newestOf(whole, b.Newest(), rare), rare), "instance-000299"), "the dropped representation is not built again")
	})
}

func TestDeltaIsBuiltForEachVersionAndStep(t *testing.T) {
	b := filled(t, 5)
	d := newTestDocuments(b)
	var text string
	built := func() float64 {
		for range 3 {
			for _, rep := range []representation{{}, {gzip: true}} {
				text = textOf(t, d.newestOf(changed, b.Newest(), rep), rep)
			}
		}
		return testutil.ToFloat64(d.built.WithLabelValues("delta", "json")) / 2
	}
	expect.Equal(t, built(), 1, "of one version were built")
	b.Perform(t, registry.Cancel{Key: registry.NewKey("APP0000", "instance-000001")})
	expect.Equal(t, built(), 2, "after a change were built")
	expect.That(t, strings.Contains(text, "DELETED"), "after a cancel it is %.200q", text)
	b.Pass(31 * time.Second)
	expect.Equal(t, built(), 3, "after a step of the lease clock were built")
}

// Otherwise a mass of registrations would be encoded again for each change within the next three minutes.
func TestDeltaOfManyChangesEncodesOneChunkForAnother(t *testing.T) {
	b := filled(t, 5000)
	d := newTestDocuments(b)
	rep := representation{gzip: true}
	l := d.list(changed, rep)
	d.newestOf(changed, b.Newest(), rep)
	before := slices.Clone(l.chunks)
	b.Perform(t, registry.Cancel{Key: registry.NewKey("APP0030", "instance-003001")})
	d.newestOf(changed, b.Newest(), rep)
	encoded := len(slices.DeleteFunc(slices.Clone(l.chunks), func(c *chunk) bool { return slices.Contains(before, c) }))
	expect.That(t, encoded >= 1 && encoded <= 3, "%d of %d chunks were encoded, want those of where it was and where it is", encoded, len(l.chunks))
}

func TestChecksumOfPartsIsThatOfTheWhole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sum := sumOf(nil)
		var all []byte
		for range rapid.IntRange(0, 5).Draw(rt, "parts") {
			part := rapid.SliceOfN(rapid.Byte(), 0, 5000).Draw(rt, "part")
			sum, all = sum.then(sumOf(part)), append(all, part...)
		}
		want := crc32.ChecksumIEEE(all)
		need.That(rt, sum.crc == want && sum.size == int64(len(all)), "got %08x of %d bytes, want %08x of %d", sum.crc, sum.size, want, len(all))
	})
}

// BenchmarkAfterOneChange measures the time from a change until the compressed document is made: the list of 10,000
// instances, and the delta of as many changes as its name says.
func BenchmarkAfterOneChange(b *testing.B) {
	for _, doc := range []struct {
		name    string
		kind    kind
		changes int // in the delta
	}{{"doc=all", whole, 0}, {"doc=delta-of-40", changed, 40}, {"doc=delta-of-1000", changed, 1000}} {
		b.Run(doc.name, func(b *testing.B) {
			m := filled(b, 10_000)
			m.Pass(5 * time.Minute) // the delta forgets them
			for i := range doc.changes {
				m.Perform(b, registry.Register{Instance: sample(fmt.Sprintf("APP%04d", i%50), fmt.Sprintf("new-%06d", i), 1)})
			}
			d, dirty := newTestDocuments(m), int64(1)
			d.newestOf(doc.kind, m.Newest(), representation{gzip: true})
			for b.Loop() {
				dirty++
				m.Perform(b, registry.Register{Instance: sample("APP0001", "new-000001", dirty)})
				d.newestOf(doc.kind, m.Newest(), representation{gzip: true})
			}
		})
	}
}
