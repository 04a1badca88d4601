package backup_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/backup"
)

// state returns a machine that holds some of everything.
func state(t testing.TB) *fsm.Machine {
	t.Helper()
	m := fsm.NewMachine()
	need.Got(m.Apply(1, 1, fsm.AppendEstablish(nil, 1, fsm.Establish{Node: "n1", Cluster: "c-1"})))(t)
	var items []fsm.Item
	for i := range 3 {
		in := &registry.Instance{App: "ORDERS", InstanceID: fmt.Sprint("orders-", i), HostName: "h", IPAddr: "192.0.2.1", Status: registry.Up, LastDirty: 7,
			RenewalInterval: 30, Duration: 90, Metadata: []registry.Pair{{Key: "zone", Value: "a"}}}
		items = append(items, fsm.Item{Op: registry.Register{Instance: in}}, fsm.Item{KV: kv.KeyOp{Key: fmt.Sprint("config/", i), Value: []byte("v")}})
	}
	items = append(items, fsm.Item{KV: kv.CreateSession{ID: "s1", LockDelay: 15_000_000_000}}, fsm.Item{KV: kv.AcquirePermit{Kind: kv.Lock, Name: "nightly", Session: "s1"}},
		fsm.Item{KV: kv.Access{Change: access.Founding(&access.Token{Accessor: strings.Repeat("a", 16), Secrets: []access.Secret{{Hash: [32]byte{7}}}})}},
		fsm.Item{Op: registry.SetOverride{Key: registry.Key{App: "ORDERS", ID: "orders-1"}, Status: registry.OutOfService, For: 600_000, By: registry.Act{Author: "amy"}}})
	entry := fsm.AppendWrite(nil, 1, registry.Stamp{Lease: 1000, Wall: 1_700_000_000_000}, 0, fsm.AppendBatch(nil, 1, fsm.BatchID{Node: "n1", Boot: 1, Seq: 1}, items))
	need.Got(m.Apply(2, 1, entry))(t)
	return m
}

func written(t testing.TB) []byte {
	t.Helper()
	m := state(t)
	var b bytes.Buffer
	_, n, err := backup.Write(&b, backup.Source{Registry: m.View(), KV: m.KV(), Header: backup.Header{Level: 1, Mode: "cp", Cluster: "c-1", Node: "n1", Version: "v1"}})
	need.That(t, err == nil && n == int64(b.Len()), "%v, and %d bytes of %d", err, n, b.Len())
	return b.Bytes()
}

func TestFileSaysWhatItHas(t *testing.T) {
	c := need.Got(backup.Read(bytes.NewReader(written(t))))(t)
	want := backup.Header{Level: 1, Mode: "cp", Cluster: "c-1", Node: "n1", Version: "v1", Wall: 1_700_000_000_000, Epoch: "c-1", Index: 11,
		Counts: backup.Counts{Instances: 3, Keys: 3, Sessions: 1, Permits: 1, Roles: 1, Tokens: 1}}
	expect.That(t, c.Header == want, "got %+v, want %+v", c.Header, want)
	expect.That(t, len(c.Instances) == 3 && c.Instances[1].Overridden == registry.OutOfService && c.Instances[1].OverrideFor == 600_000,
		"instances: %+v", c.Instances)
	expect.That(t, len(c.Pairs) == 3 && c.Pairs[2].Key == "config/2" && string(c.Pairs[2].Value) == "v", "keys: %+v", c.Pairs)
	expect.That(t, len(c.Permits) == 1 && c.Permits[0].Holders[0].Session == "s1" && c.Sessions[0].ID == "s1", "locks: %+v", c.Permits)
	expect.That(t, c.Access.Bootstrapped && c.Access.Revision == 0 && c.Access.Role(access.OperatorRole) != nil && c.Access.Tokens[0].Secrets[0].Hash == [32]byte{7}, "roles and tokens: %+v", c.Access)
}

func TestGoldenFile(t *testing.T) {
	golden.File("testdata/level-1.txtar").Check(t, "backup", written(t))
}

// Every flipped byte is found, and the error names its offset or one nearby.
func TestFileWithAnyByteFlippedIsRefusedWithThePlace(t *testing.T) {
	whole := written(t)
	for at := range whole {
		for _, bit := range []byte{1, 0x80} {
			b := bytes.Clone(whole)
			b[at] ^= bit
			_, err := backup.Read(bytes.NewReader(b))
			need.That(t, errors.Is(err, backup.ErrDamaged) && strings.Contains(err.Error(), "at byte "),
				"byte %d of %d flipped: %v, want ErrDamaged with the place", at, len(whole), err)
		}
	}
}

func TestFileThatIsCutOffOrLongerIsRefusedWithThePlace(t *testing.T) {
	whole := written(t)
	for n := range whole {
		_, err := backup.Read(bytes.NewReader(whole[:n]))
		need.That(t, errors.Is(err, backup.ErrDamaged) && strings.Contains(err.Error(), fmt.Sprintf("at byte %d: it ends inside its ", n)),
			"cut off at byte %d of %d: %v, want ErrDamaged with the place", n, len(whole), err)
	}
	_, err := backup.Read(bytes.NewReader(append(bytes.Clone(whole), 0)))
	expect.That(t, errors.Is(err, backup.ErrDamaged) && strings.Contains(err.Error(), "follows its end"), "one byte more: %v", err)
}

// Other servers refuse such an instance, but a program that skipped the check would have restored it.
func TestFileWithAnInstanceThatNoServerAcceptsIsRefusedByName(t *testing.T) {
	for _, wrong := range []registry.Replica{{Life: math.MaxUint32}, {Edit: math.MaxUint32}, {Owner: registry.Here},
		{Overridden: registry.Down, OverrideFor: math.MaxInt64}, {QuarantineFor: math.MaxInt64}} {
		wrong.Instance = &registry.Instance{App: "ORDERS", InstanceID: "absurd"}
		m := state(t)
		packer := need.Got(zstd.NewWriter(nil))(t)
		content := packer.EncodeAll((&kv.Image{Image: registry.Image{Instances: []registry.Saved{{Replica: wrong}}}}).Encode(1), nil)
		batch := fsm.AppendBatch(nil, 1, fsm.BatchID{Node: "n1", Boot: 1, Seq: 2}, []fsm.Item{{KV: kv.StagePart{ID: "r", Content: content}}, {KV: kv.Restore{ID: "r", Parts: 1, Newest: 1}}})
		need.Got(m.Apply(3, 1, fsm.AppendWrite(nil, 1, registry.Stamp{Lease: 2000}, 0, batch)))(t)
		var b bytes.Buffer
		_, _, err := backup.Write(&b, backup.Source{Registry: m.View(), KV: m.KV(), Header: backup.Header{Level: 1}})
		need.OK(t, err)
		_, _, err = backup.Verify(&b)
		expect.That(t, errors.Is(err, backup.ErrDamaged) && strings.Contains(err.Error(), "instance ORDERS/absurd: "), "%+v: %v", wrong, err)
	}
}

// A newer level is reported as newer, not as damage, whatever a newer program puts into the header.
func TestFileOfANewerLevelIsNotCalledDamaged(t *testing.T) {
	b := append([]byte("ROLLBACK"), 7)
	head := append([]byte{3}, "new"...)
	sum := crc64.Update(crc64.Update(0, crc64.MakeTable(crc64.ECMA), b), crc64.MakeTable(crc64.ECMA), head)
	b = append(b, head...)
	for i := 7; i >= 0; i-- {
		b = append(b, byte(sum>>(8*i)))
	}
	_, err := backup.Read(bytes.NewReader(b))
	expect.That(t, errors.Is(err, backup.ErrNewerVersion) && !errors.Is(err, backup.ErrDamaged) && strings.Contains(err.Error(), "level 7"), "got %v", err)
}

func FuzzRead(f *testing.F) {
	f.Add(written(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := backup.Read(bytes.NewReader(b))
		need.That(t, err == nil || errors.Is(err, backup.ErrDamaged) || errors.Is(err, backup.ErrNewerVersion),
			"%v, want one of the two errors of reading", err)
		if err == nil {
			backup.Diff(&c.Image, &c.Image)
		}
	})
}

func TestDiffNamesWhatDiffers(t *testing.T) {
	m := state(t)
	before := need.Got(backup.Read(bytes.NewReader(written(t))))(t)
	items := []fsm.Item{
		{Op: registry.Cancel{Key: registry.Key{App: "ORDERS", ID: "orders-2"}}},
		{KV: kv.KeyOp{Key: "config/0", Value: []byte("w")}}, {KV: kv.KeyOp{Verb: kv.Delete, Key: "config/1"}}, {KV: kv.KeyOp{Key: "other"}},
		{KV: kv.DestroySession{ID: "s1"}},
		{KV: kv.Access{Change: access.Change{
			Sure: true, Mode: access.LogOnly, PutRoles: []*access.Role{{Name: "viewer"}},
			Create: []*access.Token{{Accessor: strings.Repeat("b", 16), Name: "bob", Roles: []string{"viewer"}, Secrets: []access.Secret{{Hash: [32]byte{8}}}}},
			Rotate: []access.Rotation{{Accessor: strings.Repeat("a", 16), Hash: [32]byte{9}}}, Revoke: []string{strings.Repeat("c", 16)}, Return: true,
		}}},
	}
	entry := fsm.AppendWrite(nil, 1, registry.Stamp{Lease: 2000, Wall: 1_700_000_001_000}, 0, fsm.AppendBatch(nil, 1, fsm.BatchID{Node: "n1", Boot: 1, Seq: 2}, items))
	need.Got(m.Apply(3, 1, entry))(t)
	var b bytes.Buffer
	_, _, err := backup.Write(&b, backup.Source{Registry: m.View(), KV: m.KV(), Header: backup.Header{Level: 1}})
	need.OK(t, err)
	after := need.Got(backup.Read(&b))(t)
	want := backup.Differences{
		Instances: backup.Difference{Removed: []string{"ORDERS/orders-2"}},
		Keys:      backup.Difference{Added: []string{"other"}, Removed: []string{"config/1"}, Changed: []string{"config/0"}},
		Sessions:  backup.Difference{Removed: []string{"s1"}},
		Permits:   backup.Difference{Changed: []string{"lock nightly"}},
		Roles:     backup.Difference{Added: []string{"viewer"}},
		Tokens:    backup.Difference{Added: []string{strings.Repeat("b", 16)}, Changed: []string{strings.Repeat("a", 16)}},
		Revoked:   backup.Difference{Added: []string{strings.Repeat("c", 16)}},
		AuthMode:  backup.Difference{Changed: []string{"auth.mode"}},
	}
	need.Deep(t, backup.Diff(&before.Image, &after.Image), want, "the differences are")
}

// A restore makes each part an operation of the log, so it must fit into one.
func TestPartsOfLargeValuesFitIntoOperations(t *testing.T) {
	m := state(t)
	random := rand.New(rand.NewPCG(1, 2))
	for i, size := range []int{400_000, 350_000, 512 << 10, 300_000, 512 << 10} {
		value := make([]byte, size)
		for at := range value {
			value[at] = byte(random.Uint32())
		}
		item := fsm.Item{KV: kv.KeyOp{Key: fmt.Sprint("large/", i), Value: value}}
		index := uint64(3 + i)
		entry := fsm.AppendWrite(nil, 1, registry.Stamp{Lease: 2000, Wall: 1_700_000_001_000}, 0, fsm.AppendBatch(nil, 1, fsm.BatchID{Node: "n1", Boot: 1, Seq: index}, []fsm.Item{item}))
		need.Got(m.Apply(index, 1, entry))(t)
	}
	var b bytes.Buffer
	_, _, err := backup.Write(&b, backup.Source{Registry: m.View(), KV: m.KV(), Header: backup.Header{Level: 1}})
	need.OK(t, err)
	r := need.Got(backup.Open(&b))(t)
	for {
		part, err := r.Next()
		if err != nil {
			need.That(t, errors.Is(err, io.EOF), "the end: %v", err)
			return
		}
		expect.That(t, len(part) < 1<<20, "a part has %d bytes, and an operation has 1 MiB at most", len(part))
	}
}

// Every node would have to hold the unpacked contents in memory.
func TestFileThatUnpacksToTooMuchIsRefused(t *testing.T) {
	packer := need.Got(zstd.NewWriter(nil))(t)
	_, err := kv.Unpack(packer.EncodeAll(make([]byte, kv.MaxPart+1), nil))
	expect.ErrorIs(t, err, codec.ErrCorrupt, "a part of zeros: got")
	m := state(t)
	item := fsm.Item{KV: kv.KeyOp{Key: "large", Value: make([]byte, kv.MaxValue+1)}}
	need.Got(m.Apply(3, 1, fsm.AppendWrite(nil, 1, registry.Stamp{Lease: 2000, Wall: 1_700_000_001_000}, 0, fsm.AppendBatch(nil, 1, fsm.BatchID{Node: "n1", Boot: 1, Seq: 3}, []fsm.Item{item}))))(t)
	var b bytes.Buffer
	_, _, err = backup.Write(&b, backup.Source{Registry: m.View(), KV: m.KV(), Header: backup.Header{Level: 1}})
	need.OK(t, err)
	_, _, err = backup.Verify(&b)
	expect.ErrorSays(t, err, `the value of key "large" has 524289 bytes`, "got")
}

// The file holds hashes of tokens.
func TestSavedFileIsForItsOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.snap")
	_, _, err := backup.SaveFile(path, func(w io.Writer) error { _, err := w.Write(written(t)); return err })
	need.OK(t, err)
	expect.Equal(t, need.Got(os.Stat(path))(t).Mode().Perm(), 0o600, "mode")
}
