package client

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var updateLastKnown = flag.Bool("update-list", false, "write the golden file of the last list anew")

// lastKnownGolden is a file of the current version. If saving gives another content, files that exist on disks are no
// longer written as they are read: raise the format's version, keep reading this file, and give the new version a
// golden file of its own.
const lastKnownGolden = "testdata/client-list-v1.json"

// savedAt is the time of the files in these tests.
var savedAt = time.UnixMilli(1767225600123)

// savedList has everything that instances can have.
func savedList() *Snapshot {
	return listOf(
		listed("LEDGER", "ledger-1", withStatus(registry.OutOfService), func(i *registry.Instance) { i.Overridden = registry.OutOfService }),
		listed("ORDERS", "orders-1", withVIPs("orders,orders-v2", "orders-s"), func(i *registry.Instance) {
			i.SID, i.AppGroup, i.ASG, i.CountryID = "7", "SHOP", "orders-asg", 1
			i.SecurePort = registry.Port{Number: 8443, Enabled: true}
			i.RenewalInterval, i.Duration = 10, 30
			i.Metadata = []registry.Pair{{Key: "zone", Value: "eu-1a"}, {Key: "märk & \"<b>\"", Value: "\U0001F600"}}
			i.HomePageURL, i.StatusPageURL = "http://orders-1:8080/", "http://orders-1:8080/status"
			i.HealthCheckURL, i.SecureHealthURL = "http://orders-1:8080/health", "https://orders-1:8443/health"
		}),
		listed("ORDERS", "", func(i *registry.Instance) {
			i.HostName = "orders-2.example.com"
			i.DataCenter = registry.DataCenter{Name: registry.Amazon, Metadata: []registry.Pair{{Key: "instance-id", Value: "i-0f00ba4"}, {Key: "availability-zone", Value: "us-east-1c"}}}
		}),
	)
}

func newLastKnown(t testing.TB) lastKnown {
	return lastKnown{path: filepath.Join(t.TempDir(), "orders.json")}
}

func (f lastKnown) written(t testing.TB, content string) lastKnown {
	t.Helper()
	need.OK(t, os.WriteFile(f.path, []byte(content), 0o600))
	return f
}

func (f lastKnown) saved(t testing.TB, app string, s *Snapshot, upToDate time.Time) lastKnown {
	t.Helper()
	need.OK(t, f.save(app, s, upToDate))
	return f
}

func (f lastKnown) content(t testing.TB) string {
	t.Helper()
	return string(need.Got(os.ReadFile(f.path))(t))
}

func checkLoads(t *testing.T, f lastKnown, app string, want *Snapshot, wantTime time.Time) {
	t.Helper()
	got, upToDate, err := f.load(app)
	need.OK(t, err)
	if !sameLists(slices.Collect(got.All()), slices.Collect(want.All())) {
		t.Errorf("loaded %v, want %v", keysOf(got.All()), keysOf(want.All()))
		for i := range got.All() {
			t.Logf("got  %+v\nwant %+v", i, want.Instance(i.Key()))
		}
	}
	expect.That(t, upToDate.Equal(wantTime), "up to date at %v, want %v", upToDate, wantTime)
}

func TestLastKnownListIsLoadedAsItWasSaved(t *testing.T) {
	f := newLastKnown(t).saved(t, "", savedList(), savedAt.Add(999*time.Microsecond))
	checkLoads(t, f, "", savedList(), savedAt)

	f.saved(t, "", new(Snapshot), savedAt.Add(time.Second))
	checkLoads(t, f, "", new(Snapshot), savedAt.Add(time.Second))

	f.saved(t, "orders", listOf(listed("ORDERS", "1")), savedAt)
	checkLoads(t, f, "Orders", listOf(listed("ORDERS", "1")), savedAt)
}

func TestLastKnownListHasItsGoldenForm(t *testing.T) {
	got := newLastKnown(t).saved(t, "", savedList(), savedAt).content(t)
	golden := lastKnown{path: lastKnownGolden}
	if *updateLastKnown {
		golden.written(t, got)
	}
	expect.Equal(t, got, golden.content(t), "the format has changed\ngot")
	checkLoads(t, golden, "", savedList(), savedAt)
}

func TestLastKnownListIsForItsOwnerOnly(t *testing.T) {
	f := newLastKnown(t).written(t, "the one before")
	need.OK(t, os.Chmod(f.path, 0o644))
	f.saved(t, "", savedList(), savedAt)
	expect.Equal(t, need.Got(os.Stat(f.path))(t).Mode().Perm(), 0o600, "mode")
	checkNothingLeft(t, f)
}

func checkNothingLeft(t *testing.T, f lastKnown) {
	t.Helper()
	entries := need.Got(os.ReadDir(filepath.Dir(f.path)))(t)
	expect.That(t, len(entries) == 1 && entries[0].Name() == filepath.Base(f.path), "the directory has %v, want %s alone", entries, filepath.Base(f.path))
}

func TestLastKnownListThatCannotBeSavedLeavesTheOneBefore(t *testing.T) {
	t.Run("no directory", func(t *testing.T) {
		f := lastKnown{path: filepath.Join(t.TempDir(), "missing", "orders.json")}
		err := f.save("", savedList(), savedAt)
		expect.That(t, errors.Is(err, fs.ErrNotExist) && strings.Contains(err.Error(), f.path),
			"error %v, want one that names %s and that there is no such directory", err, f.path)
	})
	t.Run("a directory of that name", func(t *testing.T) {
		f := newLastKnown(t)
		need.OK(t, os.MkdirAll(filepath.Join(f.path, "inside"), 0o700))
		expect.ErrorSays(t, f.save("", savedList(), savedAt), f.path, "got")
		expect.OKf(t, expect.Err(os.Stat(filepath.Join(f.path, "inside"))), "what was there is gone")
		checkNothingLeft(t, f)
	})
}

func TestLastKnownListIsReplacedAsAWhole(t *testing.T) {
	f := newLastKnown(t).saved(t, "", savedList(), savedAt)
	old := need.Got(os.Open(f.path))(t)
	defer old.Close()
	before := f.content(t)
	f.saved(t, "", new(Snapshot), savedAt)
	var kept bytes.Buffer
	need.Got(kept.ReadFrom(old))(t)
	expect.That(t, kept.String() == before, "the file was written over: a crash in the middle would leave half a list")
}

func TestLastKnownListOfTheFutureCountsAsOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands still
		checkLoads(t, newLastKnown(t).saved(t, "", savedList(), time.Now().Add(time.Hour)), "", savedList(), time.Now())
	})
}

func TestLastKnownListThatIsNotThere(t *testing.T) {
	_, _, err := newLastKnown(t).load("")
	expect.That(t, errors.Is(err, fs.ErrNotExist), "error %v, want fs.ErrNotExist", err)
}

func TestLastKnownListIsRefused(t *testing.T) {
	good := newLastKnown(t).saved(t, "orders", listOf(listed("ORDERS", "1")), savedAt).content(t)
	replace := func(old, new string) string {
		t.Helper()
		need.That(t, strings.Contains(good, old), "the file has no %s: %s", old, good)
		return strings.Replace(good, old, new, 1)
	}
	tests := []struct {
		name    string
		content string
		app     string
		want    string
	}{
		{"empty", "", "orders", "damaged: unexpected end"},
		{"no JSON", "\x00\x01", "orders", "damaged"},
		{"no object", "[1]", "orders", "damaged"},
		{"cut off", good[:len(good)-10], "orders", "damaged: unexpected end"},
		{"something behind it", good + "{}", "orders", "damaged: invalid character '{' after"},
		{"a newer version", replace(`"version":1`, `"version":2`), "orders", "newer version of this package: its format is 2, the newest known one 1"},
		{"a newer version with other fields", `{"version":7,"entries":[]}`, "orders", "newer version"},
		{"no version", replace(`"version":1,`, ""), "orders", "damaged: its version is 0"},
		{"a version that never was", replace(`"version":1`, `"version":-1`), "orders", "damaged: its version is -1"},
		{"an unknown field", replace(`"app"`, `"more":1,"app"`), "orders", `damaged: json: unknown field "more"`},
		{"no time", replace(`"up_to_date":1767225600123,`, ""), "orders", "damaged: up_to_date is 0"},
		{"no list", `{"version":1,"app":"ORDERS","up_to_date":1}`, "orders", "damaged"},
		{"a list without applications", replace(`"applications"`, `"apps"`), "orders", `JSON lacks the root key "applications"`},
		{"a hash that does not fit", replace("UP_1_", "UP_2_"), "orders", `damaged: its list has the hash "UP_1_" and says "UP_2_"`},
		{"another application", good, "ledger", "it holds application ORDERS, not application LEDGER"},
		{"one application instead of all", good, "", "it holds application ORDERS, not all applications"},
		{"all applications instead of one", replace(`"app":"ORDERS"`, `"app":""`), "orders", "it holds all applications, not application ORDERS"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newLastKnown(t).written(t, tt.content)
			_, _, err := f.load(tt.app)
			expect.That(t, err != nil && strings.Contains(err.Error(), tt.want) && strings.Contains(err.Error(), f.path),
				"error %v, want one with %q and %s", err, tt.want, f.path)
		})
	}
}

// FuzzLoadLastKnown checks that loading never panics, and that what is loaded stays the same when it is saved and
// loaded again.
func FuzzLoadLastKnown(f *testing.F) {
	golden := lastKnown{path: lastKnownGolden}.content(f)
	f.Add(golden)
	for _, cut := range []int{0, 1, 20, len(golden) / 2, len(golden) - 2} {
		f.Add(golden[:cut])
	}
	f.Add(`{"version":2}`)
	f.Add(`{"version":1,"app":"","up_to_date":1,"list":{"applications":{"versions__delta":"1","apps__hashcode":"","application":[]}}}`)
	save := func(t *testing.T, s *Snapshot, upToDate time.Time) string {
		text, err := encodeLastKnown("", s, upToDate)
		need.OKf(t, err, "what was loaded cannot be saved")
		return string(text)
	}
	f.Fuzz(func(t *testing.T, content string) {
		s, upToDate, err := readLastKnown([]byte(content), "")
		if err != nil {
			need.That(t, s == nil, "a list beside the error %v", err)
			return
		}
		once := save(t, s, upToDate)
		again, againUpToDate, err := readLastKnown([]byte(once), "")
		need.OKf(t, err, "what was loaded and saved is refused")
		need.That(t, againUpToDate.Equal(upToDate) && slices.Equal(keysOf(again.All()), keysOf(s.All())),
			"%v of %v, want %v of %v", keysOf(again.All()), againUpToDate, keysOf(s.All()), upToDate)
		need.Equal(t, save(t, again, againUpToDate), once, "saved as\n%s\nthen as", once)
	})
}

func deltaOf(version, hash string, changes ...*registry.Lease) []byte {
	return eureka.AppendApplications(nil, eureka.Format{}, version, hash, slices.Values(changes))
}

func deltaChange(action registry.Action, i *registry.Instance) *registry.Lease {
	return &registry.Lease{Instance: i, Action: action}
}

func TestDeltaIsApplied(t *testing.T) {
	for _, tc := range []struct {
		name    string
		changes []*registry.Lease
		want    string
		named   int
	}{
		{name: "nothing", want: "ORDERS/o1=UP ORDERS/o2=UP"},
		{name: "added", changes: []*registry.Lease{deltaChange(registry.ActionAdded, orders("o3", registry.Starting))}, want: "ORDERS/o1=UP ORDERS/o2=UP ORDERS/o3=STARTING", named: 1},
		{name: "modified", changes: []*registry.Lease{deltaChange(registry.ActionModified, orders("o2", registry.Down))}, want: "ORDERS/o1=UP ORDERS/o2=DOWN", named: 1},
		{name: "modified, of one that is not known", changes: []*registry.Lease{deltaChange(registry.ActionModified, billing("b1"))}, want: "BILLING/b1=UP ORDERS/o1=UP ORDERS/o2=UP", named: 1},
		{name: "deleted", changes: []*registry.Lease{deltaChange(registry.ActionDeleted, orders("o2", registry.Up))}, want: "ORDERS/o1=UP", named: 1},
		{name: "deleted, of one that is not known", changes: []*registry.Lease{deltaChange(registry.ActionDeleted, billing("b1"))}, want: "ORDERS/o1=UP ORDERS/o2=UP", named: 1},
		{name: "the last instance of its application", changes: []*registry.Lease{
			deltaChange(registry.ActionDeleted, orders("o1", registry.Up)), deltaChange(registry.ActionDeleted, orders("o2", registry.Up)),
		}, want: "", named: 2},
		{name: "one after the other", changes: []*registry.Lease{
			deltaChange(registry.ActionDeleted, orders("o1", registry.Up)), deltaChange(registry.ActionAdded, orders("o1", registry.Down)),
		}, want: "ORDERS/o1=DOWN ORDERS/o2=UP", named: 2},
		{name: "no action", changes: []*registry.Lease{deltaChange(registry.ActionNone, orders("o3", registry.Up))}, want: "ORDERS/o1=UP ORDERS/o2=UP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := listOf(orders("o1", registry.Up), orders("o2", registry.Up))
			named := 0
			document := need.Got(eureka.DecodeApplications(deltaOf("7", "", tc.changes...)))(t)
			got := words(withDelta(before, document.Leases, func(registry.Key) { named++ }))
			expect.That(t, got == tc.want && named == tc.named, "the list is %q, %d named, want %q, %d", got, named, tc.want, tc.named)
			expect.That(t, words(before) == "ORDERS/o1=UP ORDERS/o2=UP", "the list before is %q now", words(before))
		})
	}
}

// FuzzApplyDelta checks that after any response to the fetch of a delta the list has the hash of the response, or
// everything is fetched.
func FuzzApplyDelta(f *testing.F) {
	f.Add(200, deltaOf("7", "UP_2_"))
	f.Add(200, deltaOf("7", "UP_3_", deltaChange(registry.ActionAdded, orders("o3", registry.Up))))
	f.Add(200, deltaOf("7", "DOWN_1_", deltaChange(registry.ActionDeleted, orders("o1", registry.Up)), deltaChange(registry.ActionModified, orders("o2", registry.Down))))
	f.Add(200, deltaOf("", "UP_2_"))
	f.Add(200, []byte(`{"applications":{"versions__delta":1,"apps__hashcode":"UP_2_","application":{"name":"x","instance":{"actionType":"ADDED"}}}}`))
	f.Add(200, []byte(`{"applications":null}`))
	f.Add(403, []byte(nil))
	f.Add(500, []byte(`{`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 200 || status > 599 {
			return
		}
		r := newRefresher(newDiscovery(clientOf(t, fake.Servers{"a": fake.Always(status, string(body))}, "a"), DiscoveryConfig{}))
		before := listOf(orders("o1", registry.Up), orders("o2", registry.Up))
		r.list.Store(before)
		a, document, err := r.getDelta(t.Context())
		if err == nil {
			err = r.applyDelta(a, document)
		}
		switch after := r.list.Load(); {
		case err == nil && after.HashCode() != document.HashCode:
			t.Errorf("the list has the hash %q, the document %q", after.HashCode(), document.HashCode)
		case err != nil && document == nil && after != before:
			t.Errorf("the list has changed to %q without a document: %v", words(after), err)
		}
		again := applyTwice(r, document)
		expect.That(t, again == r.list.Load(), "applied again, the list is %q, and was %q", words(again), words(r.list.Load()))
	})
}

func applyTwice(r *refresher, document *eureka.Applications) *Snapshot {
	if document == nil {
		return r.list.Load()
	}
	return withDelta(r.list.Load(), document.Leases, func(registry.Key) {})
}
