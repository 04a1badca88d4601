package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// numbered returns the n-th record, dated n seconds after noon.
func numbered(i int) api.AuditRecord {
	return api.AuditRecord{Time: noon.Add(time.Duration(i) * time.Second), Node: "n1", Name: fmt.Sprint(i), Principal: fmt.Sprintf("p%d", i%2), Outcome: api.AuditDone}
}

func opened(t *testing.T, c Config) *Log {
	t.Helper()
	l, err := Open(c, nil, slog.New(slog.DiscardHandler))
	need.That(t, err == nil, "open: %v", err)
	return l
}

// names returns the names of records, in order.
func names(records []api.AuditRecord) (all []string) {
	for _, r := range records {
		all = append(all, r.Name)
	}
	return all
}

func read(t *testing.T, l *Log, q Query) []string {
	t.Helper()
	records, err := l.Read(context.Background(), q)
	need.That(t, err == nil, "read: %v", err)
	return names(records)
}

func TestRecordsAreReadBackAcrossRotationNewestLast(t *testing.T) {
	dir := t.TempDir()
	c := Config{File: filepath.Join(dir, "audit.log"), MaxBytes: 1000, Keep: 2}
	l := opened(t, c)
	for i := range 20 {
		l.Record(numbered(i))
	}
	got := read(t, l, Query{Limit: 3})
	expect.That(t, fmt.Sprint(got) == "[17 18 19]", "the newest three are %v", got)
	all := read(t, l, Query{Limit: 100})
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	need.That(t, len(files) == 3 && len(all) > 6 && len(all) < 20 && all[len(all)-1] == "19", "%d files, with records %v; want 3, without the oldest", len(files), all)
	for i := range all[1:] {
		expect.That(t, len(all[i]) <= len(all[i+1]), "records %v are not in their order", all)
	}
	for _, path := range files {
		info, err := os.Stat(path)
		expect.That(t, err == nil && info.Mode().Perm() == 0o600 && info.Size() <= 1000, "%s has mode %v and %d bytes, want 0600 and 1000 at most", path, info.Mode(), info.Size())
	}
	again := read(t, opened(t, c), Query{Limit: 100})
	expect.That(t, fmt.Sprint(again) == fmt.Sprint(all), "after a start there are %v, want %v", again, all)
}

func TestReadingSelects(t *testing.T) {
	l := opened(t, Config{File: filepath.Join(t.TempDir(), "a"), MaxBytes: 2000, Keep: 9})
	for i := range 20 {
		r := numbered(i)
		if r.Resource = "app ORDERS"; i >= 10 {
			r.Resource, r.Outcome = "app PAY", api.AuditDenied
		}
		l.Record(r)
	}
	for _, row := range []struct {
		name string
		q    Query
		want string
	}{
		{"since a time", Query{Since: noon.Add(17 * time.Second), Limit: 100}, "[17 18 19]"},
		{"of a principal", Query{Principal: "p1", Limit: 2}, "[17 19]"},
		{"of an application", Query{Resource: "app ORDERS", Limit: 3}, "[7 8 9]"},
		{"by outcome", Query{Outcome: api.AuditDenied, Principal: "p0", Limit: 100}, "[10 12 14 16 18]"},
		{"nothing", Query{Principal: "p7", Limit: 5}, "[]"},
	} {
		got := read(t, l, row.q)
		expect.That(t, fmt.Sprint(got) == row.want, "%s: got %v, want %s", row.name, got, row.want)
	}
}

func TestLinesThatAreNoRecordsAreLeftOut(t *testing.T) {
	c := Config{File: filepath.Join(t.TempDir(), "audit.log"), MaxBytes: 1 << 20, Keep: 1}
	l := opened(t, c)
	l.Record(numbered(1))
	l.Flush(t.Context())
	junk := "no json\n" + strings.Repeat("x", 3*maxLine) + "\n" + `{"time":"2026-11-22T12:00:09Z","name":"cut o`
	f, err := os.OpenFile(c.File, os.O_APPEND|os.O_WRONLY, 0)
	need.That(t, err == nil, "%v", err)
	_, err = f.WriteString(junk)
	need.That(t, err == nil && f.Close() == nil, "%v", err)
	got := read(t, l, Query{Limit: 9})
	expect.That(t, fmt.Sprint(got) == "[1]", "with a torn last line: %v, want [1]", got)
	l = opened(t, c) // the process that wrote it is dead
	l.Record(numbered(2))
	got = read(t, l, Query{Limit: 9})
	expect.That(t, fmt.Sprint(got) == "[1 2]", "after the next start: %v, want [1 2]", got)
}

// fullDisk fails all writes while it is full, after writing half.
type fullDisk struct {
	to   io.Writer
	mu   sync.Mutex
	full bool
}

var errFull = errors.New("no space left on device")

func (d *fullDisk) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		n, _ := d.to.Write(p[:len(p)/2])
		return n, errFull
	}
	return d.to.Write(p)
}

func (d *fullDisk) set(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

func TestRecordsThatCannotBeWrittenAreCountedAndToldOnce(t *testing.T) {
	var said, written bytes.Buffer
	disk := &fullDisk{to: &written, full: true}
	l, err := Open(Config{File: Standard}, disk, slog.New(slog.NewTextHandler(&said, nil)))
	need.That(t, err == nil, "%v", err)
	for i := range 5 {
		l.Record(numbered(i))
	}
	l.Flush(t.Context())
	lost, warned := testutil.ToFloat64(l.Lost), strings.Count(said.String(), "level=WARN")
	expect.That(t, lost == 5 && warned == 1 && strings.Contains(said.String(), errFull.Error()), "%g lost, %d warnings: %s", lost, warned, said.String())
	disk.set(false)
	l.Record(numbered(6))
	l.Flush(t.Context())
	expect.That(t, testutil.ToFloat64(l.Lost) == 5 && strings.Contains(written.String(), `"name":"6"`), "%g lost, and written: %s", testutil.ToFloat64(l.Lost), written.String())
	expect.That(t, strings.Contains(said.String(), "written again"), "it is not said that the audit goes on: %s", said.String())
}

// A partly written line must not spoil the next one.
func TestALineThatWasWrittenInPartGetsAnEnd(t *testing.T) {
	w, err := openFile(Config{File: filepath.Join(t.TempDir(), "a"), MaxBytes: 1 << 20, Keep: 1})
	need.That(t, err == nil, "%v", err)
	_, err = w.f.WriteString(`{"na`)
	need.That(t, err == nil, "%v", err)
	w.torn = true
	_, err = w.Write([]byte("{}\n"))
	content, _ := os.ReadFile(w.path)
	expect.That(t, err == nil && string(content) == "{\"na\n{}\n", "%v, %q", err, content)
}

// A directory that accepts no new files, like a full disk, only costs the audit its rotation.
func TestAFileThatCannotBeRotatedGoesOn(t *testing.T) {
	c := Config{File: filepath.Join(t.TempDir(), "audit.log"), MaxBytes: 500, Keep: 1}
	l := opened(t, c)
	need.That(t, os.MkdirAll(filepath.Join(c.File+".1", "in the way"), 0o700) == nil, "mkdir")
	for i := range 9 {
		l.Record(numbered(i))
	}
	l.Flush(t.Context())
	content, err := os.ReadFile(c.File)
	expect.That(t, err == nil && bytes.Count(content, []byte("\n")) == 9 && testutil.ToFloat64(l.Lost) == 0, "%v, %g lost: %s", err, testutil.ToFloat64(l.Lost), content)
}

// stuck blocks every write.
type stuck chan struct{}

func (s stuck) Write(p []byte) (int, error) {
	<-s
	return len(p), nil
}

func TestAWriterThatStandsStillKeepsNoCallerWaiting(t *testing.T) {
	to := make(stuck)
	defer close(to)
	l, err := Open(Config{File: Standard}, to, slog.New(slog.DiscardHandler))
	need.That(t, err == nil, "%v", err)
	r := numbered(1)
	r.Name = strings.Repeat("n", maxText)
	const most = queueBytes / maxText
	for range most + 10 {
		l.Record(r)
	}
	lost := testutil.ToFloat64(l.Lost)
	expect.That(t, lost >= 10 && lost < most, "%g of %d records were lost", lost, most+10)
}

func TestHostileNamesMakeOneLineWithinABound(t *testing.T) {
	c := Config{File: filepath.Join(t.TempDir(), "audit.log"), MaxBytes: 1 << 20, Keep: 1}
	l := opened(t, c)
	hostile := "a\nb\r\x00\x1b[31m\xff\"}{" + strings.Repeat("\x01", 10_000)
	l.Record(api.AuditRecord{Time: noon, Name: hostile, Principal: hostile, Resource: hostile, Says: hostile, RequestID: hostile, Operation: hostile})
	l.Flush(t.Context())
	content, err := os.ReadFile(c.File)
	var r api.AuditRecord
	expect.That(t, err == nil && bytes.Count(content, []byte("\n")) == 1 && len(content) < maxLine/2 && json.Unmarshal(content, &r) == nil,
		"%v, %d bytes in %d lines", err, len(content), bytes.Count(content, []byte("\n")))
	expect.That(t, strings.HasPrefix(r.Name, "a\nb\r") && len(r.Name) < maxText+10, "the name is %q", r.Name)
	expect.That(t, len(read(t, l, Query{Limit: 1})) == 1, "it cannot be read back")
}

func TestNameThatHoldsATokenIsRecordedWithoutItsSecret(t *testing.T) {
	c := Config{File: filepath.Join(t.TempDir(), "audit.log"), MaxBytes: 1 << 20, Keep: 1}
	l := opened(t, c)
	secret := strings.Repeat("abcdefgh234567", 4)[:52]
	text := "rct_abcdefghijklmnop_" + secret + "_abcdefg"
	l.Record(api.AuditRecord{Time: noon, Name: "PUT /v1/kv/" + text + "/k", Resource: "app " + strings.ToUpper(text), Says: "why " + text[:60], Accessor: "abcdefghijklmnop"})
	l.Flush(t.Context())
	content := string(need.Got(os.ReadFile(c.File))(t))
	expect.That(t, !strings.Contains(strings.ToLower(content), secret[:10]), "the secret is recorded: %s", content)
	for _, kept := range []string{`PUT /v1/kv/rct_abcdefghijklmnop_…/k"`, `app RCT_ABCDEFGHIJKLMNOP_…"`, `why rct_abcdefghijklmnop_…"`, `"abcdefghijklmnop"`} {
		expect.That(t, strings.Contains(content, kept), "%s is not recorded: %s", kept, content)
	}
}

func TestStandardOutputCannotBeReadBack(t *testing.T) {
	var out bytes.Buffer
	l, err := Open(Config{File: Standard}, &out, slog.New(slog.DiscardHandler))
	need.That(t, err == nil, "%v", err)
	l.Record(numbered(1))
	l.Flush(t.Context())
	_, err = l.Read(t.Context(), Query{Limit: 1})
	expect.That(t, errors.Is(err, ErrNotKept) && strings.Contains(out.String(), `"name":"1"`), "%v, written: %s", err, out.String())
}

func TestReadingIsBoundedInBytes(t *testing.T) {
	var lines bytes.Buffer
	for i := range 100 {
		fmt.Fprintf(&lines, `{"time":"2026-11-22T12:00:00Z","name":"%d"}`+"\n", i)
	}
	got, size, err := newestOf(t.Context(), &lines, Query{}, 50, 200)
	expect.That(t, err == nil && size <= 200 && fmt.Sprint(names(got)) == "[96 97 98 99]", "%v, %d bytes: %v", err, size, names(got))
}

func TestOneOfEqualTriesASecondIsKept(t *testing.T) {
	var s sample
	a := Caller{Principal: "ops", From: netip.MustParsePrefix("10.0.0.1/32")}
	b := Caller{From: a.From}
	for i, row := range []struct {
		name    string
		after   time.Duration
		by      Caller
		thing   string
		leftOut int
		ok      bool
	}{
		{"the first", 0, a, "denied app ORDERS", 0, true},
		{"the same at once", 0, a, "denied app ORDERS", 0, false},
		{"the same again", time.Second - 1, a, "denied app ORDERS", 0, false},
		{"another thing", time.Second - 1, a, "denied app PAY", 2, true},
		{"another caller", time.Second - 1, b, "denied app ORDERS", 0, true},
		{"the same after a second", time.Second, a, "denied app ORDERS", 0, true},
	} {
		leftOut, ok := s.admit(noon.Add(row.after), row.by, row.thing, 100)
		expect.That(t, leftOut == row.leftOut && ok == row.ok, "%d, %s: %d left out, %v, want %d, %v", i, row.name, leftOut, ok, row.leftOut, row.ok)
	}
}

func TestTriesOfManyThingsAreBoundedForEachCaller(t *testing.T) {
	var s sample
	by := Caller{Principal: "ops"}
	kept := func(at time.Time, tries int) (n int) {
		for i := range tries {
			if _, ok := s.admit(at, by, fmt.Sprint(at, i), 100); ok {
				n++
			}
		}
		return n
	}
	expect.That(t, kept(noon, 1000) == sampleBurst, "at once others than %g are kept", sampleBurst)
	expect.Equal(t, kept(noon.Add(10*time.Second), 1000), 10*sampleRate, "10 s later are kept:")
}

// TestTriesOfManyCallersAreBoundedTogether: however many callers there are, and whatever they try, they push out
// little of what others did.
func TestTriesOfManyCallersAreBoundedTogether(t *testing.T) {
	const size, hour = 1000, 3600
	var s sample
	kept := 0
	for second := range hour {
		for i := range 10 {
			by := Caller{Principal: fmt.Sprint(second, i)}
			if _, ok := s.admit(noon.Add(time.Duration(second)*time.Second), by, "x", size); ok {
				kept += size
			}
		}
	}
	expect.That(t, kept > bytesBurst && float64(kept) <= bytesBurst+bytesRate*hour, "%d bytes are kept in an hour, want %d and %g more at most", kept, bytesBurst, bytesRate*hour)
	for i := range 3 * samplesKept {
		s.admit(noon.Add(hour*time.Second), Caller{Principal: fmt.Sprint(i)}, "x", 1)
	}
	expect.That(t, len(s.callers) <= samplesKept+1, "%d callers are remembered, want %d at most", len(s.callers), samplesKept+1)
}
