package disk

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// everyCut makes the tests of this file try every byte and every bit, not a part of them.
var everyCut = os.Getenv("ROLLCALL_CUTS") == "all"

const boltPage = 4096

// held is what a file of bbolt holds, as CheckBolt reads it.
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
	_, err := held(path)
	need.OK(t, err)
	return text
}

// boltWrites calls each with a file before and after each of a number of transactions, in which pages are freed and used
// again, and the file grows.
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

// TestEveryPrefixOfATransactionOfBboltLeavesTheStateBeforeOrAfterIt cuts off what a transaction writes, in its order: the file
// grows, pages are written, and at last a meta page.
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
			if metas++; err != nil { // it looks like a bit that differs in what was acknowledged
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

// TestEveryBitThatDiffersInAMetaPageIsRefused: in the newest one, which was acknowledged; in the one before it, only what a
// transaction that was cut off may have left is not, and nothing is lost then.
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

// TestAMetaPageThatIsSomethingElseIsRefused: bbolt would go on with the transaction before.
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
