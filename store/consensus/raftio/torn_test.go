package raftio

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store"
	"github.com/seed-20419f34/rollcall/store/disk"
)

// everyCut makes the tests of this file try every byte and every bit instead of a sample.
var everyCut = os.Getenv("ROLLCALL_CUTS") == "all"

// tinySegments take a few dozen entries.
const tinySegments = 6 << 10

// segmentWrite is one write to a segment: the file before it and after it.
type segmentWrite struct {
	info          types.SegmentInfo
	before, after []byte
	from, to      int    // range written
	had, has      uint64 // how many entries the file had, and has
}

// sealing reports whether the write is the last one to its segment.
func (w segmentWrite) sealing() bool { return w.to > tinySegments }

// image returns the file as left by a crash that cut the write off after n bytes.
func (w segmentWrite) image(n int) []byte {
	b := bytes.Clone(w.before)
	return append(b[:w.from:w.from], append(bytes.Clone(w.after[w.from:w.from+n]), b[min(len(b), w.from+n):]...)...)
}

// hardData returns data with parts that look like missing sectors or like frames.
func hardData(random *rand.Rand, i uint64) []byte {
	kinds := [][]byte{{0xff}, {walCommitFrame, 0, 0, 0, byte(i), 1, 2, 3}, {walEntryFrame, 0, 0, 0, 8, 0, 0, 0}, {walIndexFrame, 0, 0, 0, 4, 0, 0, 0}, {byte(i), byte(i >> 1), 7}}
	data := make([]byte, random.IntN(8)) // so that what follows may start anywhere in its word
	if random.IntN(4) == 0 {
		return append(data, make([]byte, random.IntN(4*sector))...)
	}
	return append(data, bytes.Repeat(kinds[random.IntN(len(kinds))], 1+random.IntN(300))...)
}

// segmentWrites records all writes of a log to its segments, several of them.
func segmentWrites(t *testing.T, seed uint64) (writes []segmentWrite) {
	t.Helper()
	dir := t.TempDir()
	d := need.Got(openDisk(dir, store.LogWAL, tinySegments, nil, func(err error) { t.Error(err) }))(t)
	defer d.Close()
	log := d.log.(*walLog)
	now := map[string]segmentWrite{}
	log.files.sync = func(f *os.File) error {
		b := need.Got(os.ReadFile(f.Name()))(t)
		w, known := now[f.Name()]
		if !known && len(bytes.Trim(b, "\x00")) == 0 { // just created
			now[f.Name()] = segmentWrite{after: b}
			return nil
		}
		if !known {
			w.after = make([]byte, tinySegments)
		}
		w.info = log.list.Segments[len(log.list.Segments)-1]
		need.Equal(t, segment.FileName(w.info), filepath.Base(f.Name()), "the segment that is written to")
		w.before, w.after, w.had = w.after, b, w.has
		w.from = w.to
		s := &segmentReader{info: w.info, each: func(*raft.Log) {}}
		need.OK(t, s.examine(bytes.Clone(b)))
		w.to, w.has = s.end, uint64(len(s.offsets))
		now[f.Name()] = w
		writes = append(writes, w)
		return nil
	}
	random := rand.New(rand.NewPCG(seed, 1))
	for next := uint64(1); len(segmentsIn(t, dir)) < 4; {
		logs := numbered(next, 1+random.IntN(4), 1, 0)
		for _, l := range logs {
			l.Data, l.AppendedAt = hardData(random, l.Index), time.Unix(int64(random.IntN(1<<30)), 0)
		}
		need.OK(t, d.StoreLogs(logs))
		// as for another leader's entries: the segment is sealed before it is full
		if next += uint64(len(logs)); random.IntN(9) == 0 {
			need.OK(t, d.DeleteRange(next-1, next-1))
			next--
		}
	}
	return writes
}

// tornAs examines an image of a newest segment, and returns how many entries it has and the mended file.
func tornAs(info types.SegmentInfo, image []byte) (entries uint64, mended []byte, err error) {
	s := &segmentReader{info: info, each: func(*raft.Log) {}}
	err = s.examine(bytes.Clone(image))
	mended = append(bytes.Clone(image), make([]byte, max(0, s.mendAt+len(s.mend)-len(image)))...)
	copy(mended[s.mendAt:], s.mend)
	return uint64(len(s.offsets)), mended, err
}

// mustBeMended examines an image of an interrupted write twice: the second time nothing is left to mend.
func mustBeMended(t *testing.T, w segmentWrite, image []byte, how string) {
	t.Helper()
	entries, mended, err := tornAs(w.info, image)
	need.OKf(t, err, "bytes %d to %d were written behind %d, %s", w.from, w.to, len(w.before), how)
	need.That(t, entries == w.had || entries == w.has, "%s: there are %d entries, want %d or %d", how, entries, w.had, w.has)
	again, unchanged, err := tornAs(w.info, mended)
	need.That(t, err == nil && again == entries && bytes.Equal(unchanged, mended), "%s: mended, it has %d entries, %v, and is mended again; want %d", how, again, err, entries)
	need.That(t, bytes.Equal(mended[:w.from], w.after[:w.from]), "%s: what stood before the write was changed", how)
}

// cuts returns after how many bytes to cut a write off: after each, or around sectors, the file's old end and its own
// ends.
func (w segmentWrite) cuts() (cuts []int) {
	for n := range w.to - w.from + 1 {
		at := w.from + n
		near := at%sector < 3 || at%sector > sector-3 || n < 64 || w.to-at < 64
		if everyCut || w.sealing() || near || n%5 == 0 {
			cuts = append(cuts, n)
		}
	}
	return cuts
}

// The file grows with the write, keeps its size, or already has the size that the write gives it.
func TestEveryPrefixOfAWriteToASegmentIsMended(t *testing.T) {
	tried, sealing := 0, 0
	for seed := range uint64(map[bool]int{false: 1, true: 20}[everyCut]) {
		for _, w := range segmentWrites(t, seed) {
			for _, n := range w.cuts() {
				image := w.image(n)
				mustBeMended(t, w, image, fmt.Sprintf("%d bytes are there", n))
				grown := append(bytes.Clone(image), make([]byte, max(0, len(w.after)-len(image)))...)
				mustBeMended(t, w, grown, fmt.Sprintf("%d bytes are there, and room for all", n))
				mustBeMended(t, w, image[:max(tinySegments, len(w.before))], fmt.Sprintf("%d bytes are there as far as the file reached before", n))
				tried += 3
				if w.sealing() {
					sealing += 3
				}
			}
		}
	}
	t.Logf("%d images, %d of them at the end of a segment", tried, sealing)
	expect.That(t, sealing > 1000, "%d images of writes at the end of a segment, want more", sealing)
}

// Sectors arrive in any order, and so does the file's size.
func TestEveryLossOfSectorsOfAWriteToASegmentIsMended(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	tried := 0
	for seed := range uint64(map[bool]int{false: 3, true: 40}[everyCut]) {
		for _, w := range segmentWrites(t, 100+seed) {
			for range 12 {
				b := bytes.Clone(w.after)
				for at := w.from; at < w.to; at = (at/sector + 1) * sector {
					if random.IntN(3) == 0 {
						clear(b[at:min(w.to, (at/sector+1)*sector)])
					}
				}
				size := len(w.before) + random.IntN(len(w.after)-len(w.before)+1)
				mustBeMended(t, w, b[:max(size, tinySegments)], "sectors are missing")
				tried++
			}
		}
	}
	t.Logf("%d images", tried)
}

// The bit is in what was acknowledged, whatever a crash has cut off behind it. If the last bits of a commit frame are
// missing, the write is completed: nothing is lost.
func TestEveryBitThatDiffersInASegmentIsRefused(t *testing.T) {
	flips, completed := 0, 0
	refuses := func(info types.SegmentInfo, acked []byte, cut []byte, at int, bit byte, has uint64) {
		t.Helper()
		image := append(bytes.Clone(acked), cut[len(acked):]...)
		image[at] ^= 1 << bit
		entries, mended, err := tornAs(info, image)
		flips++
		if err == nil && entries == has && bytes.Equal(mended[:len(acked)], acked) {
			completed++
			return
		}
		need.That(t, errors.Is(err, disk.ErrDamaged), "bit %d of byte %d of %d: %d entries of %d, %v", bit, at, len(acked), entries, has, err)
	}
	for seed := range uint64(map[bool]int{false: 1, true: 4}[everyCut]) {
		writes := segmentWrites(t, 200+seed)
		for i, w := range writes {
			var behind []int // how much of the next write is there
			if i+1 < len(writes) && writes[i+1].info.ID == w.info.ID {
				next := writes[i+1]
				behind = []int{1, 9, (next.to - next.from) / 2, next.to - next.from - 1}
			}
			for at := w.from; at < w.to; at++ {
				for bit := range byte(8) {
					if !everyCut && (bit != byte(at%8) || at%2 != i%2) && w.to-at > 16 {
						continue
					}
					refuses(w.info, w.after[:w.to], w.after, at, bit, w.has)
					for _, n := range behind {
						refuses(w.info, w.after[:w.to], writes[i+1].image(n), at, bit, w.has)
					}
				}
			}
		}
	}
	t.Logf("%d flips; %d of them were in the end of a commit frame, and made good", flips, completed)
	expect.That(t, completed*1000 < flips, "%d of %d flips were not refused", completed, flips)
}

// Another write follows it.
func TestSectorThatIsLostOfAnAcknowledgedWriteIsRefused(t *testing.T) {
	tried := 0
	writes := append(segmentWrites(t, 400), segmentWrites(t, 401)...)
	for i, w := range writes[1:] {
		if writes[i].info.ID != w.info.ID || writes[i].to != w.from || writes[i].has == writes[i].had || w.has == w.had {
			continue
		}
		for at := writes[i].from; at < writes[i].to; at = (at/sector + 1) * sector {
			b := bytes.Clone(w.after)
			lost := b[at:min(writes[i].to, (at/sector+1)*sector)]
			if len(bytes.Trim(lost, "\x00")) == 0 {
				continue
			}
			clear(lost)
			_, _, err := tornAs(w.info, b)
			need.That(t, errors.Is(err, disk.ErrDamaged), "bytes %d to %d of %d are zero: %v", at, at+len(lost), w.to, err)
			tried++
		}
	}
	expect.That(t, tried > 20, "%d sectors, want more", tried)
}

// The bit is anywhere up to the end of the segment's index.
func TestEveryBitThatDiffersInASealedSegmentIsRefused(t *testing.T) {
	sealed, flips := 0, 0
	for _, w := range segmentWrites(t, 300) {
		s := &segmentReader{info: w.info, each: func(*raft.Log) {}}
		need.OK(t, s.examine(bytes.Clone(w.after)))
		if s.index == 0 {
			continue
		}
		sealed++
		info := w.info
		info.SealTime, info.IndexStart, info.MaxIndex = time.Unix(1, 0), uint64(s.index), info.BaseIndex+w.has-1
		for at := range w.to {
			for bit := range byte(8) {
				if !everyCut && bit != byte(at%8) {
					continue
				}
				b := bytes.Clone(w.after)
				b[at] ^= 1 << bit
				_, _, err := tornAs(info, b)
				need.That(t, errors.Is(err, disk.ErrDamaged), "bit %d of byte %d of %d: %v", bit, at, w.to, err)
				flips++
			}
		}
	}
	expect.That(t, sealed >= 3 && flips > 1000, "%d sealed segments, %d flips, want several", sealed, flips)
}

// It opens, converts and appends to a log whose last write crossed the end of its segment, as a full disk leaves it.
func TestLogGoesOnBehindAWriteThatWasCutOffAtTheEndOfASegment(t *testing.T) {
	dir := t.TempDir()
	d := diskIn(t, dir, store.LogWAL)
	path := segmentsIn(t, dir)[0]
	terms := ""
	var before []byte
	for index := uint64(1); len(segmentsIn(t, dir)) == 1; index += 3 {
		before = need.Got(os.ReadFile(path))(t)
		terms += "111"
		// one more write, while the list lacks what follows it
		if len(bytes.TrimRight(before, "\x00")) > smallSegments-3000 {
			need.OK(t, d.bolt.Close())
			d.fail = func(error) {}
			expect.That(t, d.StoreLogs(numbered(index, 3, 1, 900)) != nil, "the list of segments was stored in a file that is closed")
			break
		}
		need.OK(t, d.StoreLogs(numbered(index, 3, 1, 900)))
	}
	need.OK(t, d.log.(*walLog).closeAll())
	whole := need.Got(os.ReadFile(path))(t)
	w := segmentWrite{before: before, after: whole, from: (len(bytes.TrimRight(before, "\x00")) + 7) / 8 * 8, to: len(whole)}
	need.That(t, len(before) == smallSegments && len(whole) > smallSegments && w.from < smallSegments, "the last write, %d to %d, does not cross the end", w.from, w.to)
	for _, n := range []int{1, 700, smallSegments - w.from - 1, smallSegments - w.from, smallSegments - w.from + 1, w.to - w.from - 100, w.to - w.from - 9, w.to - w.from - 1} {
		after := crashed(t, dir)
		need.OK(t, os.WriteFile(filepath.Join(walDir(after), filepath.Base(path)), w.image(n), 0o600))
		converted := crashed(t, after)
		entries := need.Got(convert(converted, store.LogBolt, smallSegments))(t)
		want := strings.TrimSuffix(terms, "111")
		if n == w.to-w.from-1 { // all but a part of the commit frame: the write is completed
			want = terms
		}
		expect.Equal(t, entries, uint64(len(want)), "entries of the converted log")
		mustHave(t, after, 1, want)
	}
}
