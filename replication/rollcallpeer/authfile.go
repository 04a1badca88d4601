package rollcallpeer

import (
	"log/slog"
	"sync"
	"time"
)

// fileComparison compares a node's file of roles and tokens with this node's, by their digests.
type fileComparison struct {
	own func() string // nil if nothing is compared
	log *slog.Logger

	mu     sync.Mutex
	theirs string    // "" if nothing was heard
	since  time.Time // start of the current difference; zero if there is none
	warned bool
}

// filesDifferAfter is how long files may differ before it is logged: a change reaches one node after the other.
const filesDifferAfter = time.Minute

// heard takes over the digest in a response. It is "" from an older version.
func (f *fileComparison) heard(digest string) {
	if f.own == nil || digest == "" {
		return
	}
	own := f.own()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.theirs = digest
	switch {
	case digest == own:
		f.since, f.warned = time.Time{}, false
	case f.since.IsZero():
		f.since = time.Now()
	case !f.warned && time.Since(f.since) >= filesDifferAfter:
		f.warned = true
		f.log.Warn("the peer's auth.file differs from this node's: what is allowed depends on the node that is asked", "digest", own, "peer_digest", digest)
	}
}

func (f *fileComparison) differs() (differs, ok bool) {
	if f.own == nil {
		return false, false
	}
	own := f.own()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.theirs != own, f.theirs != ""
}
