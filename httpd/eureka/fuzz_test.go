package eureka_test

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func seeds(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	need.That(f, err == nil && len(files) != 0, "no seeds for %s: %v", pattern, err)
	for _, file := range files {
		f.Add(fixture(f, filepath.Base(file)))
	}
}

// FuzzDecodeJSON: no panic, no other errors than the two, and what is read and written reads the same.
func FuzzDecodeJSON(f *testing.F) {
	seeds(f, "register-*.json")
	seeds(f, "apps*.json")
	for _, v := range matrix(f) {
		f.Add([]byte(v.Body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		fuzzInstance(t, body, full)
		if apps, err := eureka.DecodeApplications(body); err == nil {
			for _, l := range apps.Leases {
				checkReadsTheSame(t, l, full)
			}
		}
	})
}

// FuzzDecodeXML is FuzzDecodeJSON for XML.
func FuzzDecodeXML(f *testing.F) {
	seeds(f, "register-*.xml")
	seeds(f, "instance.xml")
	f.Add([]byte(withXML(`<metadata><_.00e9_-__a_>&#x1F600;&#xd;</_.00e9_-__a_></metadata>`)))
	f.Fuzz(func(t *testing.T, body []byte) { fuzzInstance(t, body, inXML) })
}

func fuzzInstance(t *testing.T, body []byte, f eureka.Format) {
	if _, err := eureka.DecodeRegistration(body, f, "ORDERS"); err != nil && !isRefusal(err) {
		t.Fatalf("an error that no status belongs to: %v", err)
	}
	if l, err := eureka.DecodeInstance(body, f); err == nil {
		checkReadsTheSame(t, l, f)
	}
}

func isRefusal(err error) bool {
	var refused *eureka.ValidationError
	return errors.Is(err, eureka.ErrUnparsable) || errors.As(err, &refused)
}

// checkReadsTheSame writes a lease and reads it back. The lease's times are written clamped, which
// is the one thing that may differ.
func checkReadsTheSame(t *testing.T, l *registry.Lease, f eureka.Format) {
	t.Helper()
	want := *l.Instance
	want.RenewalInterval, want.Duration = l.Interval, l.Duration
	doc := eureka.AppendInstanceDocument(nil, f, l, l.RenewedAt)
	got, err := eureka.DecodeInstance(doc, f)
	need.That(t, err == nil, "cannot read what was written: %v\n%s", err, doc)
	need.That(t, reflect.DeepEqual(*got.Instance, want), "%s\nread as %+v\nnot as  %+v", doc, *got.Instance, want)
	times := *l
	times.Instance = got.Instance
	need.That(t, reflect.DeepEqual(*got, times), "%s\nread as %+v\nnot as  %+v", doc, *got, times)
}

// FuzzDecodeBatch: the same for the documents of replication.
func FuzzDecodeBatch(f *testing.F) {
	seeds(f, "batch-*.json")
	f.Fuzz(func(t *testing.T, body []byte) {
		if items, err := eureka.DecodeBatch(body); err == nil {
			checkBatchReadsTheSame(t, items)
		} else if !errors.Is(err, eureka.ErrUnparsable) {
			t.Fatalf("an error that no status belongs to: %v", err)
		}
		if results, err := eureka.DecodeBatchResponse(body); err == nil {
			for _, r := range results {
				if r.Lease != nil {
					checkReadsTheSame(t, r.Lease, full)
				}
			}
		}
	})
}

func checkBatchReadsTheSame(t *testing.T, items []eureka.Item) {
	again, err := eureka.DecodeBatch(eureka.AppendBatch(nil, items))
	need.That(t, err == nil && len(again) == len(items), "%d of %d items, %v", len(again), len(items), err)
	for i, item := range items {
		if item.Lease != nil {
			checkReadsTheSame(t, item.Lease, full)
			item.Lease, again[i].Lease = nil, nil
		}
		if item.Invalid != nil && again[i].Invalid == nil {
			item.Invalid = nil // the instance that was refused was not kept
		}
		need.Deep(t, again[i], item, "item %d: got", i)
	}
}

// FuzzXMLName: a key survives as the name of an element, whatever it is.
func FuzzXMLName(f *testing.F) {
	for _, key := range []string{"a b", "9x", "owner_team", "$_.0041", "_", "é\U0001F600", "xml:lang", "-"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if key == "" || key == "@class" || strings.ToValidUTF8(key, "") != key {
			return
		}
		l := orders1()
		l.Instance.Metadata = []registry.Pair{{Key: key, Value: "v"}, {Key: key + "'", Value: ""}}
		checkReadsTheSame(t, l, inXML)
	})
}
