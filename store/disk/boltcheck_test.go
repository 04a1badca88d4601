package disk

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// everyCut makes the tests of this file try every byte and every bit instead of a sample.
var everyCut = os.Getenv("ROLLCALL_CUTS") == "all"

const boltPage = 4096

// held returns what a file of bbolt holds, as CheckBolt reads it.
func held(path string) (text string, err error) {
	err = CheckBolt(path, [][]byte{[]byte("bucket")}, func(_, key, value []byte) error {
		text += fmt.Sprintf("%q %q\n", key, value)
		_, err := Unsealed(key, value)
		return err
	})
	return text, err
}

// reopened opens a file as a node does, writes to it, and returns what it held before that.
func reopened(t *testing.T, path string) (text string) {
	t.Helper()
	db := need.Got(bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}))(t)
	need.OK(t, db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("bucket"))
		need.OK(t, b.ForEach(func(k, v []byte) error { text += fmt.Sprintf("%q %q\n", k, v); return nil }))
		return b.Put([]byte("after"), Sealed([]byte("after"), []byte("it goes on")))
	}))
	need.OK(t, db.Close())
	need.Got(held(path))(t)
	return text
}

// boltWrites runs n transactions, and calls each with the file before and after each of them. The transactions free
// and reuse pages, and grow the file.
func boltWrites(t *testing.T, n int, each func(before, after []byte, had, has string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.db")
	db := need.Got(bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}))(t)
	defer db.Close()
	need.OK(t, db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("bucket")); return err }))
	copied := filepath.Join(t.TempDir(), "copy.db")
	read := func() ([]byte, string) {
		b := need.Got(os.ReadFile(path))(t)
		need.OK(t, os.WriteFile(copied, b, 0o600))
		return b, need.Got(held(copied))(t)
	}
	random := rand.New(rand.NewPCG(1, 2))
	before, had := read()
	for i := range n {
		need.OK(t, db.Update(func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte("bucket"))
			key := fmt.Appendf(nil, "key %d", random.IntN(12))
			if i%7 == 6 {
				return b.Delete(key)
			}
			return b.Put(key, Sealed(key, bytes.Repeat([]byte{byte(i)}, random.IntN(3*boltPage))))
		}))
		after, has := read()
		each(before, after, had, has)
		before, had = after, has
	}
}

// The writes of a transaction are cut off in their order: the file grows, pages are written, and at last a meta page.
func TestEveryPrefixOfATransactionOfBboltLeavesTheStateBeforeOrAfterIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "torn.db")
	images, metas, refused, transactions := 0, 0, 0, 0
	boltWrites(t, map[bool]int{false: 12, true: 300}[everyCut], func(before, after []byte, had, has string) {
		image := append(bytes.Clone(before), make([]byte, len(after)-len(before))...)
		check := func(want ...string) error {
			need.OK(t, os.WriteFile(path, image, 0o600))
			got, err := held(path)
			images++
			need.That(t, err != nil || got == want[0] || got == want[len(want)-1], "it holds something else than before or after the transaction")
			return err
		}
		need.OK(t, check(had))
		var pages []int
		for at := 2 * boltPage; at < len(after); at += boltPage {
			if !bytes.Equal(image[at:at+boltPage], after[at:at+boltPage]) {
				pages = append(pages, at)
			}
		}
		for _, at := range pages {
			for _, n := range []int{1, 16, 17, sectorSize, boltPage / 2, boltPage} {
				copy(image[at:at+n], after[at:])
				need.OKf(t, check(had), "%d bytes of page %d are there", n, at/boltPage)
			}
		}
		meta := 0
		if !bytes.Equal(before[boltPage:2*boltPage], after[boltPage:2*boltPage]) {
			meta = boltPage
		}
		for n := range boltHeader + boltMetaSize + 1 {
			copy(image[meta:meta+n], after[meta:])
			err := check(had, has)
			if metas++; err != nil { // it looks like a flipped bit in what was acknowledged
				refused++
				need.That(t, errors.Is(err, ErrDamaged) && oneBitOff(image[meta+boltHeader:], after[meta+boltHeader:]), "%d bytes of the meta page: %v", n, err)
			}
		}
		if transactions++; transactions%4 == 0 || everyCut {
			copy(image[meta+60:meta+boltPage], before[meta+60:]) // within the meta
			need.OK(t, os.WriteFile(path, image, 0o600))
			got := reopened(t, path)
			need.That(t, got == had || got == has, "opened again, it holds %s", got)
		}
	})
	t.Logf("%d images, %d of them of a meta page, of which %d were refused", images, metas, refused)
	expect.That(t, refused*50 < metas, "%d of %d images of a meta page were refused", refused, metas)
}

const sectorSize = 512

func oneBitOff(a, b []byte) bool {
	bits := 0
	for i := range boltMetaSize {
		for d := a[i] ^ b[i]; d != 0; d &= d - 1 {
			bits++
		}
	}
	return bits == 1
}

// In the newest meta page, which was acknowledged, every bit counts. In the one before it, bits that an interrupted
// transaction may have left are accepted, and nothing is lost then.
func TestEveryBitThatDiffersInAMetaPageIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flipped.db")
	newest, older, passed := 0, 0, 0
	boltWrites(t, map[bool]int{false: 2, true: 60}[everyCut], func(before, after []byte, _, has string) {
		changed := 0
		if !bytes.Equal(before[boltPage:2*boltPage], after[boltPage:2*boltPage]) {
			changed = boltPage
		}
		for _, meta := range []int{0, boltPage} {
			for bit := boltHeader * 8; bit < (boltHeader+boltMetaSize)*8; bit++ {
				image := bytes.Clone(after)
				image[meta+bit/8] ^= 1 << (bit % 8)
				need.OK(t, os.WriteFile(path, image, 0o600))
				got, err := held(path)
				if meta == changed {
					need.That(t, errors.Is(err, ErrDamaged), "bit %d of the newest meta page: %v", bit, err)
					newest++
					continue
				}
				older++
				if err == nil {
					need.That(t, got == has, "bit %d of the older meta page: it holds something else", bit)
					passed++
				}
			}
		}
	})
	t.Logf("%d flips in the newest meta page, all refused; %d in the one before it, of which %d change nothing", newest, older, passed)
	expect.That(t, passed*12 < older, "%d of %d", passed, older)
}

// A node must say that its file is in use, and not wait until it no longer is.
func TestAFileThatAnotherProgramWritesIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file.db")
		db := need.Got(bbolt.Open(path, 0o600, nil))(t)
		defer time.AfterFunc(time.Minute, func() { _ = db.Close() }).Stop()
		expect.ErrorIs(t, expect.Err(held(path)), bbolterrors.ErrTimeout, "got")
		need.OK(t, db.Close())
	})
}

// bbolt would go on with the transaction before.
func TestAMetaPageThatIsSomethingElseIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "damaged.db")
	random := rand.New(rand.NewPCG(5, 6))
	boltWrites(t, 6, func(_, after []byte, _, _ string) {
		for _, meta := range []int{0, boltPage} {
			for name, damage := range map[string]func(b []byte){
				"zeros":        func(b []byte) { clear(b) },
				"a sector":     func(b []byte) { clear(b[:sectorSize]) },
				"anything":     func(b []byte) { rand.NewChaCha8([32]byte{byte(random.IntN(256))}).Read(b) },
				"another page": func(b []byte) { copy(b, after[3*boltPage:4*boltPage]) },
				"its end":      func(b []byte) { clear(b[boltHeader+boltTxid:]) },
			} {
				image := bytes.Clone(after)
				damage(image[meta : meta+boltPage])
				need.OK(t, os.WriteFile(path, image, 0o600))
				_, err := held(path)
				expect.That(t, errors.Is(err, ErrDamaged), "%s in the place of a meta page: %v", name, err)
			}
		}
	})
}

func TestIdentityIsKeptAndBootsRise(t *testing.T) {
	dir := t.TempDir()
	first := need.Got(OpenIdentity(dir, Owner{Mode: ModeCP, Node: "n1"}))(t)
	second := need.Got(OpenIdentity(dir, Owner{Mode: ModeCP, Node: "n1"}))(t)
	expect.That(t, first.ServerID == second.ServerID && NodeName(first.ServerID) == "n1",
		"server ids %q and %q: want the same one, of n1", first.ServerID, second.ServerID)
	expect.That(t, second.Boot > first.Boot && second.Before == first.Boot,
		"boots %d and %d after %d: want a higher one that knows the first", first.Boot, second.Boot, second.Before)
}

// Even if they start from the same identity: a batch of one must not be answered with what is remembered of the
// other.
func TestIdentityHasAnotherBootAtEachStart(t *testing.T) {
	for name, before := range map[string]uint64{"by the clock": 1, "the clock was set back": 1 << 60} {
		t.Run(name, func(t *testing.T) {
			dir, owner := t.TempDir(), Owner{Mode: ModeCP, Node: "n1"}
			original := need.Got(OpenIdentity(dir, owner))(t)
			original.Boot = before
			seen := map[uint64]bool{}
			for range 3 {
				need.OK(t, original.Save())
				id := need.Got(OpenIdentity(dir, owner))(t)
				expect.That(t, !seen[id.Boot], "two starts have boot %d", id.Boot)
				expect.That(t, id.Boot > before, "boot %d after %d, want a higher one", id.Boot, before)
				seen[id.Boot] = true
			}
		})
	}
}

// However soon it follows: that is how a node started with an older copy is told so.
func TestIdentityHasAHigherBootAtTheLaterOfTwoStarts(t *testing.T) {
	dir, owner := t.TempDir(), Owner{Mode: ModeCP, Node: "n1"}
	original := need.Got(OpenIdentity(dir, owner))(t)
	last := original.Boot
	for range 10 {
		need.OK(t, original.Save())
		id := need.Got(OpenIdentity(dir, owner))(t)
		expect.That(t, id.Boot > last, "boot %d after %d, want a higher one", id.Boot, last)
		last = id.Boot
	}
}

func TestIdentitiesOfOneNameHaveDifferentServerIDs(t *testing.T) {
	a, errA := OpenIdentity(t.TempDir(), Owner{Mode: ModeCP, Node: "n1"})
	b, errB := OpenIdentity(t.TempDir(), Owner{Mode: ModeCP, Node: "n1"})
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	expect.That(t, a.ServerID != b.ServerID, "both are %q", a.ServerID)
}

func TestIdentityRefusesADataDirectoryThatDoesNotFit(t *testing.T) {
	tests := []struct {
		name, file, node string
		want             []string // parts of the error
	}{
		{"another node's", `{"level":1,"mode":"cp","node":"n2","server_id":"n2.aa"}`, "n1", []string{`belongs to node "n2"`, `this node is "n1"`}},
		{"another mode's", `{"level":1,"mode":"ap","node":"n1","server_id":"n1.aa"}`, "n1", []string{`mode "ap"`, `mode "cp"`}},
		{"a newer version's", `{"level":99,"mode":"cp","node":"n1","server_id":"n1.aa"}`, "n1", []string{"newer version"}},
		{"from before levels", `{"version":2,"mode":"cp","node":"n1","server_id":"n1.aa"}`, "n1", []string{"identity.json", "before the first release", "empty data directory"}},
		{"from before levels, in the other mode", `{"version":2,"mode":"ap","node":"n1","server_id":"n1.aa"}`, "n1", []string{"before the first release", "empty data directory"}},
		{"of no version", `{"mode":"cp","node":"n1","server_id":"n1.aa"}`, "n1", []string{"before the first release", "empty data directory"}},
		{"not JSON", `{"level":1,`, "n1", []string{"corrupt"}},
		{"empty", ``, "n1", []string{"corrupt"}},
		{"without a server id", `{"level":1,"mode":"cp","node":"n1"}`, "n1", []string{"corrupt"}},
		{"bad node name", ``, "n 1", []string{"node name", "letters"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			need.OK(t, os.WriteFile(filepath.Join(dir, "identity.json"), []byte(tt.file), 0o600))
			_, err := OpenIdentity(dir, Owner{Mode: ModeCP, Node: tt.node})
			need.That(t, err != nil, "was accepted")
			for _, part := range tt.want {
				expect.That(t, strings.Contains(err.Error(), part), "error %q does not say %q", err, part)
			}
		})
	}
}

func TestIdentityRefusesADataDirectoryOfAnotherModeOrDatacenter(t *testing.T) {
	ap := Owner{Mode: ModeAP, Node: "n1", Datacenter: "dc1"}
	tests := []struct {
		name          string
		first, second Owner
		want          []string // parts of the error; if empty, it is accepted
	}{
		{"the same", ap, ap, nil},
		{"CP, then AP", Owner{Mode: ModeCP, Node: "n1"}, ap, []string{`mode "cp"`, `mode "ap"`, "another directory"}},
		{"AP, then CP", ap, Owner{Mode: ModeCP, Node: "n1"}, []string{`mode "ap"`, `mode "cp"`, "another directory"}},
		{"another datacenter", ap, Owner{Mode: ModeAP, Node: "n1", Datacenter: "dc2"}, []string{`datacenter "dc1"`, `"dc2"`, "set datacenter"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			need.Got(OpenIdentity(dir, tt.first))(t)
			_, err := OpenIdentity(dir, tt.second)
			need.That(t, (err == nil) == (tt.want == nil), "got %v, want an error that says %q", err, tt.want)
			for _, part := range tt.want {
				expect.That(t, strings.Contains(err.Error(), part), "error %q does not say %q", err, part)
			}
		})
	}
}

func TestIdentityMustBeThereWithALog(t *testing.T) { refusedWithoutIdentity(t, RaftDir) }

func TestIdentityMustBeThereWithARegistry(t *testing.T) { refusedWithoutIdentity(t, LocalFile) }

func refusedWithoutIdentity(t *testing.T, left string) {
	dir := t.TempDir()
	need.OK(t, os.MkdirAll(filepath.Join(dir, left), 0o700))
	_, err := OpenIdentity(dir, Owner{Mode: ModeCP, Node: "n1"})
	expect.That(t, err != nil && strings.Contains(err.Error(), left), "a directory with %s and no identity: %v, want an error that names it", left, err)
}

func TestClusterIDDependsOnTheFoundersAlone(t *testing.T) {
	a := ClusterIDOf([]string{"n1.aa", "n2.bb", "n3.cc"})
	b := ClusterIDOf([]string{"n3.cc", "n1.aa", "n2.bb"})
	expect.That(t, a == b, "order matters: %s and %s", a, b)
	b = ClusterIDOf([]string{"n1.aa", "n2.bb", "n3.dd"})
	expect.That(t, a != b, "different founders make the same cluster %s", a)
}

// Wherever the write was cut off, at the first start and at a later one.
func TestIdentityIsTheOneBeforeOrAfterACrash(t *testing.T) {
	owner := Owner{Mode: ModeCP, Node: "n1"}
	whole := t.TempDir()
	written := need.Got(OpenIdentity(whole, owner))(t)
	b := need.Got(os.ReadFile(filepath.Join(whole, identityFile)))(t)
	for n := 0; n <= len(b); n += 5 {
		first, later := t.TempDir(), t.TempDir()
		for _, dir := range []string{first, later} {
			need.OK(t, os.WriteFile(filepath.Join(dir, identityFile+".tmp"), b[:n], 0o600))
		}
		need.OK(t, os.WriteFile(filepath.Join(later, identityFile), b, 0o600))
		need.Got(OpenIdentity(first, owner))(t)
		need.OK(t, os.Link(filepath.Join(later, identityFile), filepath.Join(later, "before")))
		again := need.Got(OpenIdentity(later, owner))(t)
		before := need.Got(os.ReadFile(filepath.Join(later, "before")))(t)
		need.That(t, string(before) == string(b), "the file was written to where it stands: a crash would leave neither the old one nor the new one")
		need.That(t, again.ServerID == written.ServerID && again.Boot > written.Boot, "%d bytes were written: the node is %s in start %d", n, again.ServerID, again.Boot)
	}
}
