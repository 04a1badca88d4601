package replication

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/replication/link"
)

// States of a peer.
const (
	StateOK      = "ok"
	StateFailing = "failing" // the last transmission failed
	StatePaused  = "paused"
	StateIdle    = "idle" // another node sends
)

// authFileDiffers is the api.Peer.AuthFile of a node whose file of roles and tokens differs from this node's.
const authFileDiffers = "differs"

const (
	lagCounted = 10_000          // most unread changes that a status counts
	lagTold    = 5 * time.Second // a lag up to this long needs no reason
)

func (p *peer) status(v *registry.View, now int64) api.Peer {
	lag, since := p.lag(v, now)
	stats := p.stats()
	status := api.Peer{
		Name: p.Name, Kind: p.Kind.String(), URL: p.link.URL(),
		Cursor:     p.shownCursor(v),
		LagChanges: lag,
		Pending:    stats.AcceptorQueueSize + stats.ReprocessQueueSize + stats.QueueSize,
		InFlight:   stats.InFlight,
	}
	if lag > 0 && since > 0 {
		status.LagMS = max(0, now-since)
	}
	for _, u := range p.URLs {
		status.URLs = append(status.URLs, link.WithoutUser(u))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	status.Sent, status.Dropped, status.Repairs = maps.Clone(p.record.sent), maps.Clone(p.record.dropped), maps.Clone(p.record.repairs)
	if !p.record.success.IsZero() {
		status.LastSuccess = p.record.success.UnixMilli()
	}
	if p.record.failure != nil {
		failure := *p.record.failure
		status.LastError = &failure
	}
	status.Refused = p.refused.List()
	if p.record.repair != nil {
		repair := *p.record.repair
		status.LastRepair = &repair
	}
	status.State, status.Reason = p.state(v.Peer(p.Name), status)
	if l, ok := p.link.(link.Rollcall); ok {
		status.AuthFile, status.Reason = comparedFile(l, status.Reason)
		if status.AuthMode = l.AuthMode(); p.config.AsksMore(status.AuthMode) {
			status.Reason = sentence(status.Reason, "access control is off there and "+p.config.AuthMode()+" here")
		}
	}
	return status
}

// comparedFile reports whether the peer's auth.file equals this node's, and adds a difference to a reason.
func comparedFile(l link.Rollcall, reason string) (word, _ string) {
	switch differs, known := l.AuthFileDiffers(); {
	case !known:
		return "", reason
	case differs:
		return authFileDiffers, sentence(reason, "its auth.file says something else than that of the node that sends")
	}
	return "same", reason
}

// state returns the state in a word and a sentence. The caller holds p.mu.
func (p *peer) state(kept registry.PeerState, s api.Peer) (word, reason string) {
	switch {
	case kept.Paused:
		text := "paused"
		if kept.By.Author != "" {
			text += " by " + kept.By.Author
		}
		if kept.By.Reason != "" {
			text += ": " + kept.By.Reason
		}
		return StatePaused, sentence(text, waitingSince(s))
	case p.feed == nil:
		return StateIdle, "another node of this datacenter sends, or none"
	case p.record.failing:
		return StateFailing, sentence(s.LastError.Text, waitingSince(s))
	case p.feed.cursorUnknown():
		return StateOK, "everything is compared, because what the peer knows cannot be told from the change list"
	case s.LagMS >= lagTold.Milliseconds():
		return StateOK, waitingSince(s)
	}
	return StateOK, ""
}

func sentence(parts ...string) string {
	var said []string
	for _, part := range parts {
		if part != "" {
			said = append(said, part)
		}
	}
	return strings.Join(said, "; ")
}

func waitingSince(s api.Peer) string {
	if s.LagChanges == 0 {
		return ""
	}
	waited := (time.Duration(s.LagMS) * time.Millisecond).Round(time.Second)
	if s.LagChanges == 1 {
		return fmt.Sprintf("1 change is waiting since %v", waited)
	}
	return fmt.Sprintf("%d changes are waiting since %v", s.LagChanges, waited)
}

// shownCursor returns the cursor in the form of X-Rollcall-Index, or "" if it is not known.
func (p *peer) shownCursor(v *registry.View) string {
	at := max(p.cursor(), v.Peer(p.Name).Cursor)
	if at == 0 {
		return ""
	}
	return v.Epoch() + "-" + strconv.FormatUint(uint64(at), 10)
}

// lag returns how many changes, at least, the peer does not know yet, and the lease clock (ms) of the oldest. If
// another node sends, it returns zeros.
func (p *peer) lag(v *registry.View, now int64) (changes uint64, since int64) {
	kept := v.Peer(p.Name)
	from, known, queued := place{after: kept.Cursor, upto: kept.Cursor}, kept.Known, 0
	f := p.currentFeed()
	switch {
	case f != nil:
		from, known = f.cursor.reading()
		queued, since = f.cursor.queued()
	case !kept.Paused:
		return 0, 0
	}
	if !known {
		return uint64(v.Total()), since
	}
	unread, oldest := p.unread(v, from, now)
	if since == 0 || oldest != 0 && oldest < since {
		since = oldest
	}
	return uint64(queued + unread), since
}

// unread returns how many changes are still to be read and sent, and the lease clock (ms) of the oldest. If the list
// no longer reaches back that far, it counts everything.
func (p *peer) unread(v *registry.View, from place, now int64) (changes int, since int64) {
	list, err := v.Changes(from.upto, lagCounted)
	if err != nil {
		return v.Total(), 0
	}
	for _, c := range list {
		if _, ok := p.taskOf(v, c, from, now); !ok {
			continue
		}
		if changes == 0 {
			since = c.Lease.ChangedLease
		}
		changes++
	}
	return changes, since
}
