package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
)

// ErrDamaged means that a file of the data directory is not what this program wrote.
var ErrDamaged = errors.New("damaged")

// StartEmpty says what to do with a node whose data directory cannot be used. A node cannot know at its start whether
// the others have a majority, and an empty directory would destroy what a cluster without one can be recovered from.
const StartEmpty = "if the other nodes serve without this one (mode cp: rollcall status has a leader), give it an empty data directory, and it takes over what they have; if not, keep the directories of all nodes: rollcall recover goes on with one that can be read, and a new cluster with a snapshot file (docs/run/back-up.md)"

// bbolt checksums only its two meta pages and trusts all others. A damaged page makes it panic, even in its own
// goroutines, read beyond the file, or miss data. So we check each page that bbolt would read first, with reads that
// can fail but not fault.

// IsOfSystem reports whether an error comes from the operating system, and so says nothing of the file's contents.
func IsOfSystem(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && !errors.Is(err, ErrDamaged)
}

// AsDamage turns an error into one of damage, unless it comes from the operating system.
func AsDamage(err error) error {
	if err == nil || IsOfSystem(err) || errors.Is(err, ErrDamaged) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// The layout of bbolt's pages (its internal/common/page.go, meta.go and bucket.go), in the machine's byte order.
const (
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	boltHeader     = 16 // of a page: id, flags, count, overflow
	boltElement    = 16 // of a branch page: pos, ksize, pgid; of a leaf page: flags, pos, ksize, vsize
	boltRoot       = 16 // offset of the root in a meta: page, sequence
	boltFreelist   = 32
	boltEnd        = 40
	boltTxid       = 48
	boltMetaSum    = 56 // offset of the checksum of a meta, which covers everything before it
	boltMetaSize   = 64
	boltBucket     = 16 // of a bucket's value: root, sequence; if root is 0, its page follows
	boltBranchFlag = 1
	boltLeafFlag   = 2
	boltMetaFlag   = 4
)

// boltCheck walks the newest transaction of a file.
type boltCheck struct {
	file     io.ReaderAt
	pageSize int64
	end      uint64              // number of the first page that was never used
	seen     map[uint64]struct{} // pages that are part of the tree
	names    [][]byte            // the buckets that must exist
	each     func(bucket, key, value []byte) error
}

// CheckBolt reads a whole file of bbolt and calls each with its contents; the slices are valid during the call. Its
// errors wrap ErrDamaged, or come from opening the file.
func CheckBolt(path string, names [][]byte, each func(bucket, key, value []byte) error) (err error) {
	defer RecoverDamage(&err)
	if info, err := os.Stat(path); err != nil {
		return err
	} else if info.Size() == 0 {
		return fmt.Errorf("%w: it is empty", ErrDamaged) // bbolt would try to fill it
	}
	// Holds the lock, so that no process writes meanwhile. For reading, bbolt examines only the meta pages.
	lock, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 2 * time.Second, ReadOnly: true})
	if err != nil {
		return err
	}
	defer lock.Close()
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	c := &boltCheck{file: file, seen: map[uint64]struct{}{}, names: names, each: each}
	return AsDamage(c.run(info.Size()))
}

func (c *boltCheck) run(size int64) error {
	root, err := c.metas(size)
	if err != nil {
		return err
	}
	if c.end > uint64(size/c.pageSize) {
		return fmt.Errorf("it has %d bytes, and should have %d pages of %d", size, c.end, c.pageSize)
	}
	found := 0
	err = c.tree(root, nil, nil, func(key, value []byte, isBucket bool) error {
		if !isBucket || found >= len(c.names) || !bytes.Equal(key, c.names[found]) {
			return fmt.Errorf("%q is not a bucket", key)
		}
		found++
		return c.bucket(bytes.Clone(key), value)
	})
	if err == nil && found < len(c.names) {
		err = fmt.Errorf("bucket %q is missing", c.names[found])
	}
	return err
}

// metas checks both meta pages. bbolt accepts a single valid one even if it is the older one, so a damaged page would
// undo the last acknowledged transaction. So an invalid page must be one that a crash cut off while it was written.
func (c *boltCheck) metas(size int64) (root uint64, err error) {
	ne := binary.NativeEndian
	var pages [2][]byte
	var newest int
	valid := 0
	for i := range pages {
		b := make([]byte, boltHeader+boltMetaSize)
		if _, err := c.file.ReadAt(b, int64(i)*c.pageSize); err != nil {
			return 0, fmt.Errorf("meta page %d: %w", i, err)
		}
		m := b[boltHeader:]
		pageSize := int64(ne.Uint32(m[8:]))
		if ne.Uint64(b) != uint64(i) || ne.Uint16(b[8:]) != boltMetaFlag || ne.Uint32(m) != boltMagic || ne.Uint32(m[4:]) != boltVersion {
			return 0, fmt.Errorf("meta page %d is not what was written", i)
		}
		if pageSize < boltHeader+boltMetaSize || i > 0 && pageSize != c.pageSize {
			return 0, fmt.Errorf("its pages have %d bytes", pageSize)
		}
		c.pageSize, pages[i] = pageSize, m
		if validMeta(m) && (valid == 0 || ne.Uint64(m[boltTxid:]) > ne.Uint64(pages[newest][boltTxid:])) {
			newest = i
		}
		if validMeta(m) {
			valid++
		}
	}
	m, other := pages[newest], pages[1-newest]
	txid, before := ne.Uint64(m[boltTxid:]), ne.Uint64(other[boltTxid:])
	switch {
	case valid == 0 || valid == 1 && !tornMeta(other, m, uint64(size/c.pageSize)):
		return 0, fmt.Errorf("meta page %d is not what was written", 1-newest)
	case valid == 2 && before+1 != txid:
		return 0, fmt.Errorf("its meta pages are of the transactions %d and %d, want two in a row", before, txid)
	}
	c.end = ne.Uint64(m[boltEnd:])
	return ne.Uint64(m[boltRoot:]), nil
}

func validMeta(m []byte) bool {
	sum := fnv.New64a()
	sum.Write(m[:boltMetaSum])
	return binary.NativeEndian.Uint64(m[boltMetaSum:]) == sum.Sum64()
}

// tornMeta reports whether a meta can be the start of the next one after the newest, followed by the end of the one
// before it. What the newest one determines must match. If a single flipped bit turns the meta into a valid next one,
// it was acknowledged, and the page is damaged.
func tornMeta(m, newest []byte, filePages uint64) bool {
	ne := binary.NativeEndian
	above := uint64(1) // bits that a mixture of two page numbers cannot have
	for above <= filePages {
		above <<= 8
	}
	txid := ne.Uint64(newest[boltTxid:])
	next, before := ne.AppendUint64(nil, txid+1), ne.AppendUint64(nil, txid-1)
	mixed := false
	for n := range len(next) + 1 {
		mixed = mixed || bytes.Equal(m[boltTxid:boltMetaSum], slices.Concat(next[:n], before[n:]))
	}
	if !mixed || ne.Uint64(m[boltRoot:]) >= above || ne.Uint64(m[boltEnd:]) >= above || !bytes.Equal(m[12:boltRoot], newest[12:boltRoot]) || !bytes.Equal(m[boltRoot+8:boltFreelist], newest[boltRoot+8:boltFreelist]) {
		return false
	}
	for bit := range boltMetaSize * 8 {
		flipped := bytes.Clone(m)
		if flipped[bit/8] ^= 1 << (bit % 8); validMeta(flipped) {
			at := bit / 8 // of the meta before, which nothing depends on: the first byte that the next one changes
			return ne.Uint64(flipped[boltTxid:]) < txid && at < boltMetaSum && (at < boltFreelist || at >= boltEnd)
		}
	}
	return true
}

// bucket checks the pages below a bucket, given its value.
func (c *boltCheck) bucket(name, value []byte) error {
	if len(value) < boltBucket {
		return fmt.Errorf("bucket %q has %d bytes", name, len(value))
	}
	each := func(key, value []byte, isBucket bool) error {
		if isBucket {
			return fmt.Errorf("bucket %q has a bucket in it", name)
		}
		return c.each(name, key, value)
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return c.tree(root, nil, nil, each)
	}
	return c.page(value[boltBucket:], 0, nil, nil, each)
}

// tree checks a page and the pages below it, whose keys are from first on and before last; nil means no bound.
func (c *boltCheck) tree(id uint64, first, last []byte, each func(key, value []byte, isBucket bool) error) error {
	if id < 2 || id >= c.end {
		return fmt.Errorf("page %d does not exist", id)
	}
	var header [boltHeader]byte
	if _, err := c.file.ReadAt(header[:], int64(id)*c.pageSize); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	more := uint64(binary.NativeEndian.Uint32(header[12:])) // overflow pages
	if more >= c.end-id {
		return fmt.Errorf("page %d ends beyond the last one", id)
	}
	for i := id; i <= id+more; i++ {
		if _, twice := c.seen[i]; twice {
			return fmt.Errorf("page %d has two uses", i)
		}
		c.seen[i] = struct{}{}
	}
	b := make([]byte, int64(more+1)*c.pageSize)
	if _, err := c.file.ReadAt(b, int64(id)*c.pageSize); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return c.page(b, id, first, last, each)
}

// page checks bbolt's layout of a page: the elements, then their keys and values without a gap, in key order. So no
// element can be missing.
func (c *boltCheck) page(b []byte, id uint64, first, last []byte, each func(key, value []byte, isBucket bool) error) error {
	if len(b) < boltHeader {
		return fmt.Errorf("page %d has %d bytes", id, len(b))
	}
	ne := binary.NativeEndian
	flags, count := ne.Uint16(b[8:]), int(ne.Uint16(b[10:]))
	if ne.Uint64(b) != id || flags != boltLeafFlag && (flags != boltBranchFlag || count == 0) {
		return fmt.Errorf("page %d is not what was written", id)
	}
	at := uint64(boltHeader + count*boltElement)
	if at > uint64(len(b)) {
		return fmt.Errorf("page %d has no room for %d elements", id, count)
	}
	elements := make([]boltItem, count)
	for i := range elements {
		e := &elements[i]
		start := uint64(boltHeader + i*boltElement)
		pos, size := e.parse(b[start:start+boltElement], flags == boltLeafFlag)
		if start+pos != at || e.keySize == 0 || at+size > uint64(len(b)) {
			return fmt.Errorf("element %d of page %d is not what was written", i, id)
		}
		e.key, e.value = b[at:at+e.keySize], b[at+e.keySize:at+size]
		at += size
		if first != nil && bytes.Compare(e.key, first) < 0 || i > 0 && bytes.Compare(e.key, elements[i-1].key) <= 0 || last != nil && bytes.Compare(e.key, last) >= 0 {
			return fmt.Errorf("element %d of page %d is out of order", i, id)
		}
	}
	for i, e := range elements {
		next := last
		if i+1 < count {
			next = elements[i+1].key
		}
		if err := c.below(e, next, flags == boltLeafFlag, each); err != nil {
			return err
		}
	}
	return nil
}

func (c *boltCheck) below(e boltItem, next []byte, leaf bool, each func(key, value []byte, isBucket bool) error) error {
	if leaf {
		return each(e.key, e.value, e.bucket)
	}
	return c.tree(e.child, e.key, next, each)
}

// boltItem is an element of a page.
type boltItem struct {
	keySize    uint64
	key, value []byte
	bucket     bool   // in a leaf page
	child      uint64 // in a branch page
}

// parse returns the offset of the element's content, from the element's start, and its length.
func (e *boltItem) parse(b []byte, leaf bool) (pos, size uint64) {
	ne := binary.NativeEndian
	if !leaf {
		e.keySize, e.child = uint64(ne.Uint32(b[4:])), ne.Uint64(b[8:])
		return uint64(ne.Uint32(b)), e.keySize
	}
	flags := ne.Uint32(b)
	if flags > 1 {
		return 0, 0 // which no element has
	}
	e.bucket, e.keySize = flags == 1, uint64(ne.Uint32(b[8:]))
	return uint64(ne.Uint32(b[4:])), e.keySize + uint64(ne.Uint32(b[12:]))
}

// RecoverDamage turns a panic into an error: bbolt panics on some kinds of damage.
func RecoverDamage(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", ErrDamaged, p)
	}
}

// Castagnoli is the table of CRC-32C.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ChecksumSize is how much longer a sealed value is.
const ChecksumSize = 4

// Sealed returns a value followed by a checksum of its key and of itself.
func Sealed(key, value []byte) []byte {
	sum := crc32.Update(crc32.Checksum(key, Castagnoli), Castagnoli, value)
	return binary.BigEndian.AppendUint32(value[:len(value):len(value)], sum)
}

// Unsealed is the inverse of Sealed.
func Unsealed(key, b []byte) ([]byte, error) {
	n := len(b) - ChecksumSize
	if n < 0 || binary.BigEndian.Uint32(b[n:]) != crc32.Update(crc32.Checksum(key, Castagnoli), Castagnoli, b[:n]) {
		return nil, fmt.Errorf("%w: what %q has differs from its checksum", ErrDamaged, key)
	}
	return b[:n:n], nil
}
