package audit

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

// sample decides which of many equal records are kept: for one caller one per second for each thing it tries, and
// sampleRate per second (sampleBurst at once) in total; for all callers together only so many bytes (bytesRate) that
// files of the default sizes keep days of what others did. So callers who try without permission can neither fill a
// disk nor push out what others did. The zero value is ready.
type sample struct {
	mu      sync.Mutex
	callers map[Caller]*tries
	seed    maphash.Seed
	bytes   float64 // spent bytes of bytesBurst, at
	at      time.Time
}

// Caller is a principal (may be "") at a network.
type Caller struct {
	Principal string
	From      netip.Prefix
}

const (
	sampleEvery = time.Second
	sampleRate  = 2.0
	sampleBurst = 50.0
	// samplesKept bounds the remembered callers, and for each the things that it tried.
	samplesKept = 4096
	thingsKept  = 64
	// bytesRate, per second, and bytesBurst bound the records of all callers: 1 MiB an hour, and 4 MiB at once.
	bytesRate  = float64(1<<20) / 3600
	bytesBurst = 4 << 20
)

// tries is what one caller tried lately.
type tries struct {
	spent  float64 // of sampleBurst, at
	at     time.Time
	left   int                  // tries left out since the last record
	things map[uint64]time.Time // by hash, when the last record was kept
}

// admit reports whether a record of a size in bytes is kept, and how many of the caller's were left out since the last
// kept one.
func (s *sample) admit(now time.Time, by Caller, thing string, size int) (leftOut int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.callers[by]
	if t == nil {
		t = s.add(now, by)
	}
	hash := maphash.String(s.seed, thing)
	spent := max(t.spent-sampleRate*now.Sub(t.at).Seconds(), 0)
	bytes := max(s.bytes-bytesRate*now.Sub(s.at).Seconds(), 0) + float64(size)
	if last, tried := t.things[hash]; tried && now.Sub(last) < sampleEvery || spent+1 > sampleBurst || bytes > bytesBurst {
		t.left++
		return 0, false
	}
	s.bytes, s.at = bytes, now
	if len(t.things) >= thingsKept {
		clear(t.things)
	}
	t.things[hash], t.spent, t.at = now, spent+1, now
	leftOut, t.left = t.left, 0
	return leftOut, true
}

// add remembers one more caller. If there are too many, it forgets those that tried nothing for a while; if there are
// none of these, the new ones count as one.
func (s *sample) add(now time.Time, by Caller) *tries {
	if len(s.callers) >= samplesKept {
		for of, t := range s.callers {
			if now.Sub(t.at) > sampleBurst/sampleRate*time.Second {
				delete(s.callers, of)
			}
		}
		if len(s.callers) >= samplesKept {
			by = Caller{}
			if t := s.callers[by]; t != nil {
				return t
			}
		}
	}
	if s.callers == nil {
		s.callers, s.seed = make(map[Caller]*tries), maphash.MakeSeed()
	}
	t := &tries{at: now, things: make(map[uint64]time.Time)}
	s.callers[by] = t
	return t
}
